package egress

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// hostileServer does to its client what a server can do.
func hostileServer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.FormValue("status"))
		w.Header()["Location"] = []string{r.FormValue("to")}
		w.WriteHeader(max(status, 302))
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/reflect", func(w http.ResponseWriter, r *http.Request) {
		to := strings.ReplaceAll(r.FormValue("to"), "SECRET", r.FormValue("key"))
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/same-query", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/echo?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
	})

	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(1<<30))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) { flood(w, r, []byte(strings.Repeat("x", 64<<10))) })
	compressed := bomb()
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(compressed)
	})
	mux.HandleFunc("/empty-members", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		gzip.NewWriter(&b).Close()
		flood(w, r, bytes.Repeat(b.Bytes(), 1000))
	})
	mux.HandleFunc("/corrupt", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "this is not gzip at all")
	})
	mux.HandleFunc("/brotli", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "....")
	})
	mux.HandleFunc("/twice", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Encoding"] = []string{"gzip", "gzip"}
		io.WriteString(w, "....")
	})
	mux.HandleFunc("/slow-header", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/slow-body", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "a little")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "short")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/many-fields", func(w http.ResponseWriter, r *http.Request) {
		for i := range MaxResponseHeaders + 1 {
			w.Header().Set(fmt.Sprintf("X-%d", i), "1")
		}
	})
	mux.HandleFunc("/large-header", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*MaxHeaderBytes))
	})
	mux.HandleFunc("/early-hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "after hints")
	})
	mux.HandleFunc("/hint-flood", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		for range 10000 {
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-After")
		io.WriteString(w, "body")
		w.Header().Set("X-After", r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/hop-headers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusProxyAuthRequired)
	})
	return mux
}

func flood(w io.Writer, r *http.Request, piece []byte) {
	for r.Context().Err() == nil {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// echo answers with all it was sent, in one form.
func echo(w http.ResponseWriter, r *http.Request) {
	secret := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if key := r.Header.Get("X-Api-Key"); key != "" {
		secret = key
	}
	if key := r.FormValue("key"); key != "" {
		secret = key
	}
	if _, password, ok := r.BasicAuth(); ok {
		secret = password + " " + r.Header.Get("Authorization")
	}

	out := secret
	switch r.FormValue("as") {
	case "header":
		w.Header().Set("X-Echo", url.QueryEscape(secret))
		out = ""
	case "header-name":
		w.Header().Set("X-"+secret, "1")
		out = ""
	case "cookie":
		w.Header()["Set-Cookie"] = []string{"s=" + base64.StdEncoding.EncodeToString([]byte(secret))}
		out = ""
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		io.WriteString(gz, secret)
		gz.Close()
		return
	case "base64":
		out = base64.StdEncoding.EncodeToString([]byte(secret))
	case "base64-inner":
		out = base64.URLEncoding.EncodeToString([]byte(`{"auth":"` + secret + `","x":1}`))
	case "hex":
		out = hex.EncodeToString([]byte(secret))
	case "json":
		b, _ := json.Marshal(secret)
		out = string(b)
	case "json-slash":
		b, _ := json.Marshal(secret)
		out = strings.ReplaceAll(string(b), "/", `\/`)
	case "html":
		out = html.EscapeString(secret)
	case "query":
		out = url.QueryEscape(secret)
	case "lower-escapes":
		out = lowerEscapes(url.QueryEscape(secret))
	case "part":
		w.Header().Set("Content-Range", "bytes 0-10/100")
		w.WriteHeader(http.StatusPartialContent)
		out = "Bearer s3cr"
	case "status":
		w.WriteHeader(http.StatusTeapot)
	case "all":
		w.Header().Set("Content-Type", "text/plain")
		r.Header.Del("User-Agent")
		if r.Method == http.MethodPost {
			r.Header.Del("Connection") // the transport's, in HTTP/1
		}
		var b strings.Builder
		for _, name := range slices.Sorted(keys(r.Header)) {
			fmt.Fprintf(&b, "%s: %s | ", name, strings.Join(r.Header[name], ", "))
		}
		out = r.Method + " " + r.URL.RequestURI() + " " + b.String()
	}
	io.WriteString(w, out)
}

func keys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range h {
			if !yield(k) {
				return
			}
		}
	}
}

// bomb returns 100 MiB in 100 KiB of gzip. That takes long to make, so it is made once, and
// before the first request.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	gz.Write(make([]byte, 100<<20))
	gz.Close()
	return b.Bytes()
})
