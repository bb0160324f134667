// Plugin primes counts primes with a segmented sieve of Eratosthenes. It takes
// as long as it is asked to, and keeps reporting its progress. As a background
// run, it continues where it was when its host died.
package main

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	Limit int `json:"limit" desc:"Count the primes up to this number" min:"0" max:"1000000000" example:"2000000"`
}

type result struct {
	Limit   int `json:"limit"`
	Count   int `json:"count" desc:"How many primes there are up to the limit"`
	Largest int `json:"largest" desc:"The largest of them, 0 if there is none"`
}

const (
	segment  = 1 << 16 // numbers sieved at a time: they fit into a processor's cache, and take less than a millisecond
	reported = 20      // lines of output during the whole run
	kept     = 1 << 24 // numbers between two checkpoints, which take a fraction of a second
)

// state is a checkpoint: it contains everything needed to continue.
type state struct {
	Next   int    `json:"next"` // first number that has not been counted yet
	Result result `json:"result"`
}

func primes(c *guest.Call, in args) (result, error) {
	s, err := resume(c, in)
	if err != nil {
		return s.Result, err
	}
	if err := c.ProgressUnit("numbers"); err != nil {
		return s.Result, err
	}
	if err := c.Status("sieving"); err != nil {
		return s.Result, err
	}
	r := &s.Result
	base := sieve(int(math.Sqrt(float64(in.Limit))) + 1)
	composite := make([]bool, segment)
	step := in.Limit/reported + 1
	for s.Next <= in.Limit {
		low := s.Next
		s.Next = min(low+segment, in.Limit+1)
		r.add(base, composite[:s.Next-low], low)
		if low/step != s.Next/step {
			fmt.Fprintf(c.Output(), "%d primes below %d\n", r.Count, s.Next)
		}
		if err := c.Progress(float64(s.Next), float64(in.Limit+1), fmt.Sprintf("%d primes", r.Count)); err != nil {
			return *r, err
		}
		if s.Next%kept == 0 {
			if err := s.save(c); err != nil {
				return *r, err
			}
		}
	}
	return *r, c.Summary(fmt.Sprintf("Found %d primes up to %d; the largest is %d.", r.Count, r.Limit, r.Largest))
}

// resume returns the state that an earlier attempt of this run had reached, or
// the initial state.
func resume(c *guest.Call, in args) (state, error) {
	s := state{Result: result{Limit: in.Limit}}
	data, err := c.LoadCheckpoint()
	if err != nil || data == nil {
		return s, err
	}
	err = json.Unmarshal(data, &s)
	fmt.Fprintf(c.Output(), "continuing at %d with %d primes\n", s.Next, s.Result.Count)
	return s, err
}

func (s state) save(c *guest.Call) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return c.SaveCheckpoint(data)
}

// add counts the primes in the segment that starts at low.
func (r *result) add(base []int, composite []bool, low int) {
	clear(composite)
	for _, p := range base {
		if p*p >= low+len(composite) {
			break
		}
		first := max(p*p, (low+p-1)/p*p)
		for i := first - low; i < len(composite); i += p {
			composite[i] = true
		}
	}
	for i, isComposite := range composite {
		if n := low + i; !isComposite && n > 1 {
			r.Count++
			r.Largest = n
		}
	}
}

// sieve lists the primes up to limit, which must be small.
func sieve(limit int) []int {
	var found []int
	composite := make([]bool, limit+1)
	for n := 2; n <= limit; n++ {
		if composite[n] {
			continue
		}
		found = append(found, n)
		for i := n * n; i <= limit; i += n {
			composite[i] = true
		}
	}
	return found
}

var plugin = guest.Plugin{
	Name: "primes", Version: "1.0.0", Description: "Counts primes, for as long as it takes.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "primes",
		Title:       "Count primes",
		Description: "Counts the primes up to a limit. A limit of 300 million takes several seconds: spawn it in the background.",
		Handler:     guest.Handle(primes),
		Hints: guest.Hints{
			SupportsBackground: true, Idempotent: true, Readonly: true, LongRunning: true, OpenWorld: new(false),
		},
		Narrate: guest.Narration{
			Started:  guest.Text{ByLocale: map[string]string{"en": "Counting the primes up to {limit}", "de": "Zähle die Primzahlen bis {limit}"}},
			Finished: guest.Text{ByLocale: map[string]string{"en": "Counted the primes up to {limit}", "de": "Die Primzahlen bis {limit} sind gezählt"}},
			Failed:   guest.Say("Could not count the primes up to {limit}"),
		},
		Examples: []guest.Example{
			{Name: "none", Args: args{1}, Result: result{1, 0, 0}},
			{Name: "a hundred", Args: args{100}, Result: result{100, 25, 97}},
			{Name: "over several segments", Args: args{2_000_000}, Result: result{2_000_000, 148_933, 1_999_993}},
		},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
