// Plugin clients is a program as others write them: goroutines that share the work, and
// client libraries that know nothing of the host, one that retries and one that limits the
// rate. Its test continues it in another process whenever it waits.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"

	"github.com/toolhost/toolhost/guest"
	_ "github.com/toolhost/toolhost/guest/web"
)

func main() {}

func init() {
	guest.Serve(&guest.Plugin{
		Name: "clients", Version: "1.0.0", Description: "Orders items of a shop that often fails.",
		Needs: guest.Needs{Clock: true, HTTP: []guest.HTTPNeed{{URL: "https://*/*", Methods: []string{"*"}}}},
		Tools: []guest.Tool{{Name: "order", Description: "Orders items.", Hints: guest.Hints{SupportsBackground: true}, Handler: guest.Handle(buyAll)}},
	})
}

type args struct {
	URL   string `json:"url"`
	Items int    `json:"items"`
}

type receipt struct {
	Item  int    `json:"item"`
	Price int    `json:"price"`
	Order string `json:"order"`
}

type receipts struct {
	Receipts []receipt `json:"receipts"`
	Total    int       `json:"total"`
	Retries  int64     `json:"retries"`
}

const workers = 2

// buyAll looks up the price of each item, and orders it.
func buyAll(c *guest.Call, in args) (out receipts, _ error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var retries atomic.Int64
	s := shop{client: newClient(&retries), url: in.URL}

	items := make(chan int)
	go func() {
		defer close(items)
		for item := range in.Items {
			items <- item
		}
	}()

	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range workers {
		all.Go(func() {
			for item := range items {
				r, err := s.buy(ctx, item)
				mu.Lock()
				out.Receipts, errs = append(out.Receipts, r), append(errs, err)
				fmt.Fprintln(c.Output(), len(out.Receipts))
				mu.Unlock()
			}
		})
	}
	all.Wait()

	slices.SortFunc(out.Receipts, func(a, b receipt) int { return a.Item - b.Item })
	for _, r := range out.Receipts {
		out.Total += r.Price
	}
	out.Retries = retries.Load()
	return out, errors.Join(errs...)
}

func newClient(retries *atomic.Int64) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{Transport: polite{rate.NewLimiter(rate.Every(20*time.Millisecond), 1)}}
	client.Logger = nil
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = 20, 20*time.Millisecond, 60*time.Millisecond
	client.RequestLogHook = func(_ retryablehttp.Logger, _ *http.Request, attempt int) {
		if attempt > 0 {
			retries.Add(1)
		}
	}
	return client
}

// polite makes requests at a limited rate.
type polite struct{ limit *rate.Limiter }

func (p polite) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.limit.Wait(r.Context()); err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r) // which is the host's network
}

type shop struct {
	client *retryablehttp.Client
	url    string
}

func (s shop) buy(ctx context.Context, item int) (r receipt, err error) {
	r.Item = item
	if err := s.do(ctx, "GET", fmt.Sprintf("/prices/%d", item), nil, &r); err != nil {
		return r, err
	}
	return r, s.do(ctx, "POST", fmt.Sprintf("/orders/%d", item), fmt.Appendf(nil, `{"price":%d}`, r.Price), &r)
}

func (s shop) do(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := retryablehttp.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
