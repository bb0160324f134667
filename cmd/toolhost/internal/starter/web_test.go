package starter_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// internet stands for all hosts there are: a proxy that leads each request to handler.
func internet(t testing.TB, handler http.HandlerFunc) host.Egress {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"api.open-meteo.com", "geocoding-api.open-meteo.com", "page.example.com", "other.example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)

	site := httptest.NewUnstartedServer(handler)
	site.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	site.StartTLS()
	t.Cleanup(site.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", site.Listener.Addr().String())
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { // both end when the site or the client closes
			defer here.Close()
			_, _ = io.Copy(here, there)
		}()
		defer there.Close()
		_, _ = io.Copy(there, here)
	}))
	t.Cleanup(proxy.Close)
	return host.Egress{Proxy: proxy.URL, ProxyResolves: true, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func TestWeb(t *testing.T) {
	var asked string
	egress := internet(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.Host + r.URL.String()
		kind := "text/html; charset=utf-8"
		body := ""
		switch r.URL.Path {
		case "/":
			body = "<!doctype html><html><head><title>A &amp; B\n page</title><style>p { a: '<b>' }</style><script>if (a < b) '</p>'</script></head>" +
				"<body><nav>Menu</nav><h1>Head</h1>\n <p>One  <b>two</b>&nbsp;&#x41;&#66; &euro; &unknown; 1 < 2 <!-- <p>hidden --> end.</p>" +
				"<ul><li>first<li><a href='/to?a=1&amp;b=2'>second</a></ul><pre>  a\n    b</pre><table><tr><td>x</td><td>y</td></tr></table><svg><text>no</text></svg><p>last"
		case "/moved":
			http.Redirect(w, r, "https://other.example.com/plain", http.StatusFound)
			return
		case "/plain":
			kind, body = "text/plain", "plain <b>text</b>"
		case "/json":
			kind, body = "application/problem+json", `{"a":1}`
		case "/latin":
			kind, body = "text/html; charset=ISO-8859-1", "<p>gr\xfc\xdfe"
		case "/image":
			kind, body = "image/png", "\x89PNG"
		case "/missing":
			http.NotFound(w, r)
			return
		case "/huge": // and it never says how long it is
			w.Header().Set("Content-Type", kind)
			line := []byte(strings.Repeat("<p>a ", 200_000))
			for range 100 {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
			return
		case "/brackets":
			body = strings.Repeat("<", 1<<20)
		case "/nested":
			body = strings.Repeat("<div><svg>", 100_000)
		case "/comment":
			body = "<p>seen<!--" + strings.Repeat("<!--", 300_000)
		case "/entities":
			body = strings.Repeat("&#x110000;&#99999999;&", 100_000)
		case "/scripts":
			body = strings.Repeat("<script>", 100_000)
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	})
	p := open(t, map[string]plugins.Grant{"web": {HTTP: []host.HTTPRule{{URL: "https://*/*"}}}}, egress)

	text := "# Head\n\nOne two AB \u20ac &unknown; 1 < 2 end.\n\n- first\n- second\n\n  a\n    b\n\nx | y |\n\nlast"
	p.gives("web_fetch", object{"url": "https://page.example.com/"}, asJSON(t, object{"url": "https://page.example.com/", "title": "A & B page", "text": text}))
	require.Equal(t, "GET page.example.com/", asked)
	have, _ := p.call("s", "web_fetch", object{"url": "https://page.example.com/", "links": true})
	require.Contains(t, have, "- second (https://page.example.com/to?a=1&b=2)")
	p.gives("web_fetch", object{"url": "https://page.example.com/moved"}, `{"url":"https://other.example.com/plain","text":"plain <b>text</b>"}`)
	p.gives("web_fetch", object{"url": "https://page.example.com/json"}, `{"url":"https://page.example.com/json","text":"{\"a\":1}"}`)
	p.gives("web_fetch", object{"url": "https://page.example.com/latin"}, `{"url":"https://page.example.com/latin","text":"gr\u00fc\u00dfe"}`)
	p.fails("web_fetch", object{"url": "https://page.example.com/image"}, "https://page.example.com/image is image/png, not text")
	p.fails("web_fetch", object{"url": "https://page.example.com/missing"}, "page.example.com answers 404")
	p.fails("web_fetch", object{"url": "page.example.com"}, "expected a URL with https://")
	p.fails("web_fetch", object{"url": "file:///etc/passwd"}, "expected a URL with https://")
	p.fails("web_fetch", object{"url": "https://127.0.0.1/"}, "127.0.0.1")
	p.fails("web_fetch", object{"url": "http://page.example.com/"}, "http")

	p.fails("web_fetch", object{"url": "https://page.example.com/huge"}, "4194304 bytes")
	have, failure := p.call("s", "web_fetch", object{"url": "https://page.example.com/brackets", "offset": 1000, "limit": 100})
	require.Empty(t, failure)
	require.JSONEq(t, `{"url":"https://page.example.com/brackets","text":"`+strings.Repeat("<", 100)+`","next":1100}`, have)
	for path, want := range map[string]string{"nested": "", "comment": "seen", "scripts": ""} {
		p.gives("web_fetch", object{"url": "https://page.example.com/" + path}, asJSON(t, object{"url": "https://page.example.com/" + path, "text": want}))
	}
	_, failure = p.call("s", "web_fetch", object{"url": "https://page.example.com/entities"})
	require.Empty(t, failure)
}

func TestWeather(t *testing.T) {
	var asked []string
	answer := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host+r.URL.Path+"?"+r.URL.RawQuery)
		query := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/search" && query.Get("name") == "Paris":
			io.WriteString(w, `{"results":[
				{"name":"Paris","latitude":48.85,"longitude":2.35,"country_code":"FR","country":"France","admin1":"\u00cele-de-France","timezone":"Europe/Paris"},
				{"name":"Paris","latitude":33.66,"longitude":-95.55,"country_code":"US","country":"United States","admin1":"Texas"}]}`)
		case r.URL.Path == "/v1/search" && query.Get("name") == "Down":
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, "<html>")
		case r.URL.Path == "/v1/search":
			io.WriteString(w, `{"generationtime_ms":0.5}`)
		case query.Get("latitude") == "33.66":
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"error":true,"reason":"Hourly API request limit exceeded."}`)
		case query.Has("current"):
			io.WriteString(w, `{"timezone":"Europe/Paris","current_units":{"temperature_2m":"\u00b0C","apparent_temperature":"\u00b0C","relative_humidity_2m":"%","precipitation":"mm","wind_speed_10m":"km/h"},
				"current":{"time":"2026-11-23T18:00","temperature_2m":7.5,"apparent_temperature":5,"relative_humidity_2m":81,"precipitation":0,"weather_code":3,"wind_speed_10m":9.4}}`)
		case query.Get("forecast_days") == "2":
			io.WriteString(w, `{"daily_units":{"temperature_2m_max":"\u00b0F","precipitation_sum":"inch","wind_speed_10m_max":"mp/h"},
				"daily":{"time":["2026-11-23","2026-11-24"],"weather_code":[61,99],"temperature_2m_max":[50,52.5],"temperature_2m_min":[40,41],"precipitation_sum":[0.1,0],"precipitation_probability_max":[80,null],"wind_speed_10m_max":[10,11]}}`)
		default:
			io.WriteString(w, `{}`)
		}
	}
	rules := []host.HTTPRule{{URL: "https://api.open-meteo.com/v1/forecast"}, {URL: "https://geocoding-api.open-meteo.com/v1/search"}}
	p := open(t, map[string]plugins.Grant{"weather": {HTTP: rules}}, internet(t, answer))

	p.gives("get_weather", object{"place": "Paris"}, `{"place":"Paris, \u00cele-de-France, France","time":"2026-11-23T18:00 (Europe/Paris)","condition":"overcast",
		"temperature":"7.5 \u00b0C","feels_like":"5 \u00b0C","humidity":"81 %","precipitation":"0 mm","wind":"9.4 km/h"}`)
	require.Equal(t, []string{
		"geocoding-api.open-meteo.com/v1/search?name=Paris&count=1&language=en&format=json",
		"api.open-meteo.com/v1/forecast?latitude=48.85&longitude=2.35&timezone=auto&current=temperature_2m%2Capparent_temperature%2Crelative_humidity_2m%2Cprecipitation%2Cweather_code%2Cwind_speed_10m",
	}, asked)
	p.gives("get_forecast", object{"place": "Paris, France", "days": 2, "units": "imperial"}, `{"place":"Paris, \u00cele-de-France, France","units":{"temperature":"\u00b0F","precipitation":"inch","wind":"mp/h"},"days":[
		{"date":"2026-11-23","condition":"light rain","min":40,"max":50,"precipitation":0.1,"precipitation_percent":80,"wind":10},
		{"date":"2026-11-24","condition":"thunderstorm with heavy hail","min":41,"max":52.5,"precipitation":0,"precipitation_percent":null,"wind":11}]}`)
	require.Contains(t, asked[3], "temperature_unit=fahrenheit&wind_speed_unit=mph&precipitation_unit=inch")

	p.fails("get_weather", object{"place": "Paris, texas"}, "the weather service answers 429: Hourly API request limit exceeded.")
	p.fails("get_weather", object{"place": "Paris, Spain"}, `no place "Paris, Spain": there is Paris, Île-de-France, France; Paris, Texas, United States`)
	p.fails("get_weather", object{"place": "Nowhere"}, `no place "Nowhere": try another spelling`)
	p.fails("get_weather", object{"place": "Down"}, "the weather service answers 502 without JSON: try again later")
	p.fails("get_forecast", object{"place": "Paris", "days": 3}, "the weather service has no forecast for this place")
	p.fails("get_forecast", object{"place": ",x"}, "expected the name of a city")
}
