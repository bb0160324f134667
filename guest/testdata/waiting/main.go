// Plugin waiting is the fixture of a plugin whose goroutines wait. Each case is
// ordinary Go, and gives the same result wherever it runs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/guest"
	_ "github.com/toolhost/toolhost/guest/web"
)

type args struct {
	Case string `json:"case"`
	N    int    `json:"n,omitempty"`
	URL  string `json:"url,omitempty"`
}

var cases = map[string]func(*guest.Call, args) (any, error){
	"sleep":     sleep,
	"order":     order,
	"short":     short,
	"ticker":    ticker,
	"timeouts":  timeouts,
	"select":    selects,
	"locks":     locks,
	"pipeline":  pipeline,
	"tools":     tools,
	"one":       one,
	"first":     first,
	"canceled":  canceled,
	"mixed":     mixed,
	"http":      fetch,
	"hurried":   hurried,
	"collector": collector,
	"leak":      leak,
	"busy":      busy,
	"until":     until,
	"deaf":      deaf,
	"deadlock":  deadlock,
	"channel":   channel,
	"goexit":    func(*guest.Call, args) (any, error) { runtime.Goexit(); return nil, nil },
	"panic":     func(*guest.Call, args) (any, error) { time.Sleep(time.Millisecond); panic("after waiting") },
	"crash":     crash,
}

func main() {}

func init() {
	guest.Serve(&guest.Plugin{
		Name: "waiting", Version: "1.0.0", Description: "Waits.",
		Needs: guest.Needs{Clock: true, Ask: true, Tools: []string{"other"}, HTTP: []guest.HTTPNeed{{URL: "https://*/*"}}},
		Tools: []guest.Tool{{Name: "waiting", Description: "Waits.", Hints: guest.Hints{Messages: true, SupportsBackground: true}, Handler: guest.Handle(run)}},
	})
}

func run(c *guest.Call, in args) (any, error) {
	f := cases[in.Case]
	if f == nil {
		return nil, errors.New("no such case")
	}
	return f(c, in)
}

// ms is a step of the cases, which are about the order of things and not about time.
const ms = time.Millisecond

func sleep(_ *guest.Call, in args) (any, error) {
	start := time.Now()
	d := time.Duration(in.N) * ms
	time.Sleep(d)
	return time.Since(start) >= d, nil
}

// notes are what goroutines say in turn.
type notes struct {
	mu   sync.Mutex
	said []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, text)
}

// order has goroutines wait in another order than they were started, some by timers of
// the same time.
func order(*guest.Call, args) (any, error) {
	var n notes
	var all sync.WaitGroup
	for _, i := range []int{5, 1, 4, 2, 3} {
		all.Go(func() {
			for step := range 3 {
				time.Sleep(time.Duration(20*i) * ms)
				if i == 1 || step == 2 {
					n.add(fmt.Sprint(i, step))
				}
			}
		})
	}
	all.Wait()
	return n.said, nil
}

// short has sleeps that are shorter than what the host is asked for.
func short(*guest.Call, args) (any, error) {
	start := time.Now()
	for range 20 {
		time.Sleep(50 * time.Microsecond)
	}
	return time.Since(start) >= ms, nil
}

func ticker(*guest.Call, args) (any, error) {
	t := time.NewTicker(2 * ms)
	defer t.Stop()
	n := 0
	for range t.C {
		if n++; n == 5 {
			return n, nil
		}
	}
	return nil, nil
}

func timeouts(*guest.Call, args) (any, error) {
	var said []string
	ctx, cancel := context.WithTimeout(context.Background(), 2*ms)
	defer cancel()
	inner, cancelInner := context.WithTimeout(ctx, time.Hour)
	defer cancelInner()
	<-inner.Done()
	said = append(said, inner.Err().Error())

	fired := make(chan string, 1)
	time.AfterFunc(ms, func() { fired <- "func" })
	said = append(said, <-fired)

	stopped := time.AfterFunc(time.Hour, func() { panic("it was stopped") })
	said = append(said, fmt.Sprint(stopped.Stop()))

	moved := time.NewTimer(time.Hour)
	moved.Reset(ms)
	<-moved.C
	return append(said, "moved"), nil
}

func selects(*guest.Call, args) (any, error) {
	var said []string
	never := make(chan int)
	select {
	case <-never:
	case <-time.After(ms):
		said = append(said, "after")
	}

	go func() { time.Sleep(ms); never <- 1 }()
	select {
	case v := <-never:
		said = append(said, fmt.Sprint(v))
	case <-time.After(time.Hour):
	}

	select {
	case <-never:
	default:
		said = append(said, "default")
	}
	return said, nil
}

func locks(*guest.Call, args) (any, error) {
	var mu sync.RWMutex
	cond := sync.NewCond(new(sync.Mutex))
	var once sync.Once
	var all sync.WaitGroup
	n, ready := 0, false
	for range 10 {
		all.Go(func() {
			cond.L.Lock()
			for !ready {
				cond.Wait()
			}
			cond.L.Unlock()

			once.Do(func() { time.Sleep(2 * ms); n = 100 })
			mu.Lock()
			defer mu.Unlock()
			before := n
			time.Sleep(ms) // which the others wait for
			n = before + 1
		})
	}

	time.Sleep(ms)
	cond.L.Lock()
	ready = true
	cond.Broadcast()
	cond.L.Unlock()
	all.Wait()
	mu.RLock()
	defer mu.RUnlock()
	return n, nil
}

func pipeline(_ *guest.Call, in args) (any, error) {
	numbers, squares := make(chan int), make(chan int, 3)
	go func() {
		defer close(numbers)
		for i := range in.N {
			numbers <- i
			time.Sleep(ms)
		}
	}()

	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range numbers {
				time.Sleep(ms)
				squares <- i * i
			}
		})
	}
	go func() { workers.Wait(); close(squares) }()

	sum := 0
	for s := range squares {
		sum += s
	}
	return sum, nil
}

// tools calls tools at a time.
func tools(c *guest.Call, in args) (any, error) {
	answers := make([]int, in.N)
	errs := make([]error, in.N)
	var all sync.WaitGroup
	for i := range in.N {
		all.Go(func() { errs[i] = c.CallTool("other", map[string]int{"n": i}, &answers[i]) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

// one calls tools one after the other.
func one(c *guest.Call, in args) (any, error) {
	sum := 0
	for range in.N {
		var n int
		if err := c.CallTool("other", map[string]int{"n": 1}, &n); err != nil {
			return nil, err
		}
		sum += n
	}
	return sum, nil
}

// first takes the first of several answers, while the other goroutines wait.
func first(c *guest.Call, in args) (any, error) {
	answers := make(chan int)
	for i := range in.N {
		go func() {
			var n int
			if c.CallTool("other", map[string]int{"n": i}, &n) == nil {
				answers <- n
			}
		}()
	}
	return <-answers, nil
}

// canceled cancels an operation, and then another one ends.
func canceled(c *guest.Call, _ args) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() {
		done <- c.HostContext(ctx, "tool.call", map[string]any{"tool": "other", "args": map[string]int{"n": -1}}, nil)
	}()
	var n int
	if err := c.CallTool("other", map[string]int{"n": 1}, &n); err != nil {
		return nil, err
	}
	cancel()
	err := <-done
	return []any{errors.Is(err, context.Canceled), c.Err() == nil, n}, c.CallTool("other", map[string]int{"n": 2}, nil)
}

// mixed waits in every way at a time.
func mixed(c *guest.Call, _ args) (any, error) {
	var n notes
	var all sync.WaitGroup
	all.Go(func() { time.Sleep(2 * ms); n.add("sleep") })
	all.Go(func() {
		if err := c.Sleep(2 * ms); err != nil {
			n.add(err.Error())
			return
		}
		n.add("operation")
	})
	all.Go(func() {
		answers, err := c.Ask(map[string]guest.Question{"q": guest.Form("really?", `{"type":"object"}`)})
		n.add(fmt.Sprint("ask ", answers["q"].Action, err))
	})
	all.Go(func() {
		m, err := c.Receive(time.Hour)
		if err != nil {
			n.add(err.Error())
			return
		}
		n.add("message " + string(m.Data))
	})
	all.Go(func() {
		var v int
		err := c.CallTool("other", map[string]int{"n": 7}, &v)
		n.add(fmt.Sprint("tool ", v, err))
	})
	all.Go(func() {
		_, err := c.KV().Get("key", new(any))
		n.add(fmt.Sprint("denied ", errors.Is(err, guest.ErrDenied)))
	})
	all.Wait()
	slices.Sort(n.said)
	return n.said, nil
}

func fetch(_ *guest.Call, in args) (any, error) {
	client := http.Client{Timeout: time.Hour}
	bodies := make([]string, in.N)
	errs := make([]error, in.N)
	var all sync.WaitGroup
	for i := range in.N {
		all.Go(func() {
			resp, err := client.Get(fmt.Sprintf("%s/%d", in.URL, i))
			if err != nil {
				errs[i] = err
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			bodies[i], errs[i] = string(body), err
		})
	}
	all.Wait()
	return bodies, errors.Join(errs...)
}

// hurried makes a request that never ends.
func hurried(_ *guest.Call, in args) (any, error) {
	client := http.Client{Timeout: time.Duration(in.N) * ms}
	_, err := client.Get(in.URL)
	var timeout interface{ Timeout() bool }
	timedOut := errors.As(err, &timeout) && timeout.Timeout()

	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(ms, cancel)
	r, _ := http.NewRequestWithContext(ctx, "GET", in.URL, nil)
	_, err = http.DefaultClient.Do(r)
	return []bool{timedOut, errors.Is(err, context.Canceled)}, nil
}

// collector makes garbage, and collects it, between waits.
func collector(*guest.Call, args) (any, error) {
	kept := map[int][]byte{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range 8 {
		all.Go(func() {
			for j := range 5 {
				b := make([]byte, 64<<10)
				b[len(b)-1] = byte(i)
				time.Sleep(ms)
				runtime.GC()
				mu.Lock()
				kept[8*j+i] = b
				mu.Unlock()
			}
		})
	}
	all.Wait()
	sum := 0
	for _, b := range kept {
		sum += int(b[len(b)-1])
	}
	return sum, nil
}

// leak returns while goroutines run and wait.
func leak(c *guest.Call, in args) (any, error) {
	for i := range in.N {
		go func() { _ = c.CallTool("other", map[string]int{"n": -1}, nil) }()
		go func() { time.Sleep(time.Hour) }()
		go func() {
			for {
				runtime.Gosched()
			}
		}()
		go func() { <-make(chan int, i) }()
	}
	time.Sleep(ms)
	return runtime.NumGoroutine() >= 4*in.N, nil
}

// busy polls a variable while an operation is pending.
func busy(c *guest.Call, _ args) (any, error) {
	var done atomic.Bool
	go func() {
		_ = c.CallTool("other", map[string]int{"n": 1}, nil)
		done.Store(true)
	}()
	for !done.Load() {
		time.Sleep(10 * time.Microsecond)
	}
	return true, nil
}

// until sleeps until the call is being stopped, and then once more.
func until(c *guest.Call, _ args) (any, error) {
	for c.Progress(1, -1, "") == nil {
		time.Sleep(ms)
	}
	time.Sleep(2 * ms)
	return "stopped", nil
}

// deaf sleeps whatever happens.
func deaf(c *guest.Call, _ args) (any, error) {
	_ = c.Progress(1, -1, "")
	time.Sleep(1000 * time.Hour)
	return nil, nil
}

func deadlock(*guest.Call, args) (any, error) {
	var mu sync.Mutex
	mu.Lock()
	time.Sleep(ms)
	mu.Lock()
	return nil, nil
}

// channel is a deadlock of several goroutines.
func channel(*guest.Call, args) (any, error) {
	c := make(chan json.RawMessage)
	go func() { c <- <-c }()
	return <-c, nil
}

func crash(*guest.Call, args) (any, error) {
	go func() { time.Sleep(ms); panic("in a goroutine") }()
	time.Sleep(time.Hour)
	return nil, nil
}
