package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/gotool"
)

// args are the arguments of a call.
type args = map[string]any

// office is a made-up company whose tools the tasks use. All that it has is computed, so
// that every run finds the same.
type office struct {
	mu    sync.Mutex
	did   []string       // what cannot be undone
	names []string       // of tools, as they were first called
	asked map[string]int // calls, by what they asked for
}

func (o *office) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.did, o.names, o.asked = nil, nil, map[string]int{}
}

// effects are what was done. The order is not counted: calls may run at once.
func (o *office) effects() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(slices.Values(o.did))
}

func (o *office) used() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.names)
}

func (o *office) does(what ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.did = append(o.did, fmt.Sprint(what...))
}

// times is how often something was asked for, this time included.
func (o *office) times(what string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[what]++
	return o.asked[what]
}

type (
	customer struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Email   string `json:"email"`
		Country string `json:"country"`
		Plan    string `json:"plan"`
		Manager string `json:"manager" desc:"Account manager, a user name"`
		Since   string `json:"since"`
	}
	line struct {
		SKU      string `json:"sku"`
		Quantity int    `json:"quantity"`
	}
	order struct {
		ID       int     `json:"id"`
		Customer string  `json:"customer"`
		Status   string  `json:"status"`
		Total    float64 `json:"total"`
		Currency string  `json:"currency"`
		Placed   string  `json:"placed"`
		Parcel   string  `json:"parcel"`
		Lines    []line  `json:"lines"`
	}
	invoice struct {
		ID       string  `json:"id"`
		Customer string  `json:"customer"`
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
		DaysLate int     `json:"days_late"`
		Paid     bool    `json:"paid"`
	}
	stock struct {
		SKU       string `json:"sku"`
		Warehouse string `json:"warehouse"`
		OnHand    int    `json:"on_hand"`
		Reserved  int    `json:"reserved"`
		Level     int    `json:"reorder_level"`
	}
	day struct {
		Date    string `json:"date"`
		High    int    `json:"high"`
		Low     int    `json:"low"`
		Rain    int    `json:"rain_mm"`
		Summary string `json:"summary"`
	}
	ticket struct {
		ID     string   `json:"id"`
		Title  string   `json:"title"`
		Label  string   `json:"label"`
		Order  int      `json:"order"`
		Thread []string `json:"thread,omitempty"`
	}
	review struct {
		Stars int    `json:"stars"`
		Text  string `json:"text"`
	}
)

// mixed is a number below n that looks random.
func mixed(i, salt, n int) int {
	x := uint32(i)*2654435761 + uint32(salt)*40503
	x ^= x >> 15
	x *= 2246822519
	x ^= x >> 13
	return int(x % uint32(n))
}

func pick[T any](i, salt int, from ...T) T { return from[mixed(i, salt, len(from))] }

// cents rounds an amount of money.
func cents(x float64) float64 { return math.Round(x*100) / 100 }

const (
	customers = 60
	orders    = 180
	invoices  = 80
	pageSize  = 25
)

var rates = map[string]float64{"EUR": 1, "USD": 0.92, "GBP": 1.17, "CHF": 1.04}

func customerAt(i int) customer {
	first := pick(i, 1, "Aldo", "Berta", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana", "Ines", "Jonas")
	last := pick(i, 2, "Keller", "Lindt", "Moreau", "Nowak", "Okafor", "Park", "Quist", "Rossi", "Sato", "Tran")
	return customer{
		ID: fmt.Sprintf("c_%d", 100+i), Name: first + " " + last, Email: strings.ToLower(first+"."+last) + fmt.Sprintf("%d@example.com", i),
		Country: pick(i, 3, "DE", "FR", "PL", "US", "JP", "BR"), Plan: pick(i, 4, "free", "pro", "pro", "enterprise"),
		Manager: pick(i, 5, "amara", "bo", "carla"), Since: fmt.Sprintf("20%02d-%02d-%02d", 15+mixed(i, 6, 11), 1+mixed(i, 7, 12), 1+mixed(i, 8, 28)),
	}
}

func orderAt(i int) order {
	o := order{
		ID: 1000 + i, Customer: customerAt(mixed(i, 11, customers)).ID, Status: pick(i, 12, "open", "paid", "shipped", "shipped"),
		Total: float64(1000+mixed(i, 13, 150_000)) / 100, Currency: pick(i, 14, "EUR", "EUR", "USD", "GBP", "CHF"),
		Placed: fmt.Sprintf("2026-03-%02d", 1+mixed(i, 15, 28)), Parcel: fmt.Sprintf("PX%05d", 10000+i*37), Lines: []line{},
	}
	for l := range 1 + mixed(i, 16, 3) {
		o.Lines = append(o.Lines, line{sku(mixed(i, 17+l, 20)), 1 + mixed(i, 20+l, 4)})
	}
	return o
}

func invoiceAt(i int) invoice {
	return invoice{fmt.Sprintf("INV-%03d", i), customerAt(mixed(i, 31, customers)).ID, float64(5000+mixed(i, 32, 200_000)) / 100, "EUR", mixed(i, 33, 60), mixed(i, 34, 3) > 0}
}

func sku(i int) string { return fmt.Sprintf("SKU-%02d", i) }

func stockAt(i int, warehouse string) stock {
	salt := 40 + len(warehouse)
	return stock{sku(i), warehouse, 40 + mixed(i, salt, 160), mixed(i, salt+1, 60), 50 + mixed(i, 44, 30)}
}

func forecast(city string) (days []day) {
	for i := range 5 {
		n := i + 10*len(city)
		rain := max(0, mixed(n, 51, 14)-4)
		days = append(days, day{fmt.Sprintf("2026-03-%02d", 2+i), 8 + mixed(n, 52, 9), mixed(n, 53, 8), rain, map[bool]string{true: "dry, some clouds", false: "rain at times"}[rain == 0]})
	}
	return days
}

// page is a page of a list, whose pages begin with 1.
func page[T any](all []T, n int) (some []T, pages int) {
	pages = (len(all) + pageSize - 1) / pageSize
	from := min(max(n-1, 0)*pageSize, len(all))
	return append([]T{}, all[from:min(from+pageSize, len(all))]...), pages
}

// list is what n things are that fit.
func list[T any](n int, at func(int) T, fits func(T) bool) (all []T) {
	for i := range n {
		if v := at(i); fits(v) {
			all = append(all, v)
		}
	}
	return all
}

// tool makes a tool that an office has.
func tool[In, Out any](o *office, name, description string, readonly bool, f func(In) (Out, error)) gotool.Tool {
	hints := abi.Hints{Readonly: readonly}
	return gotool.Tool{Name: name, Description: description, Hints: hints, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in In) (Out, error) {
		o.mu.Lock()
		if !slices.Contains(o.names, name) {
			o.names = append(o.names, name)
		}
		o.mu.Unlock()
		return f(in)
	})}
}
