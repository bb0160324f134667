package main

import (
	"fmt"
	"slices"
	"strings"
)

// task is a task done both ways. What the model says is fixed: the best that a model
// without mistakes would say that reads nothing but its conversation. In turns it calls at
// once whatever does not depend on another call, and computes without writing a word.
type task struct {
	name  string
	asks  string // what the user asks
	turns func(a *agent) any
	// script is the same with exec. The model first searches for tools.
	script func(a *agent) any
	// want is the answer, and what has to be done once, in order.
	want func() (answer any, effects []string)
}

func nothing(answer any) func() (any, []string) {
	return func() (any, []string) { return answer, nil }
}

// one is a script, after a search for its tools.
func one(code string, queries ...string) func(a *agent) any {
	return func(a *agent) any {
		a.search(queries...)
		return a.exec(code)
	}
}

// others are calls of a tool for the pages of a list after the first.
func others(tool string, pages int, in args) (calls []call) {
	for p := 2; p <= pages; p++ {
		with := args{"page": p}
		for k, v := range in {
			with[k] = v
		}
		calls = append(calls, call{tool, with})
	}
	return calls
}

// allOrders has the model read all pages of orders.
func allOrders(a *agent, in args, along ...call) (all []order, with []answer) {
	first := ask[ordersOut](a, call{"orders_list", in})[0]
	rest := others("orders_list", first.Pages, in)
	all = first.Orders
	for i, one := range a.turn(append(rest, along...)...) {
		if i >= len(rest) {
			with = append(with, one)
			continue
		}
		all = append(all, decode[ordersOut](a, one).Orders...)
	}
	return all, with
}

func tasks() []task {
	return slices.Concat(small(), chains(), lists(), many(), reading())
}

// small are tasks of few calls.
func small() []task {
	return []task{{
		name: "one call",
		asks: "What is the status of order 1042?",
		turns: func(a *agent) any {
			return ask[order](a, call{"order_get", args{"id": 1042}})[0].Status
		},
		script: one(`
			return (await tools.order_get({ id: 1042 })).status;
		`, "get order by number"),
		want: nothing(orderAt(42).Status),
	}, {
		name: "two calls, one after the other",
		asks: "What is the email address of the customer of order 1042?",
		turns: func(a *agent) any {
			o := ask[order](a, call{"order_get", args{"id": 1042}})[0]
			return ask[customer](a, call{"customer_get", args{"id": o.Customer}})[0].Email
		},
		script: one(`
			const order = await tools.order_get({ id: 1042 });
			return (await tools.customer_get({ id: order.customer })).email;
		`, "get order by number", "get customer by id"),
		want: nothing(customerOf(orderAt(42)).Email),
	}, {
		name: "three calls at once",
		asks: "Which of Hamburg, Lyon and Poznan gets the least rain in the next five days?",
		turns: func(a *agent) any {
			best, least := "", 0
			for _, f := range ask[forecastOut](a, call{"weather_forecast", args{"city": "Hamburg"}}, call{"weather_forecast", args{"city": "Lyon"}}, call{"weather_forecast", args{"city": "Poznan"}}) {
				if rain := rainOf(f.Days); best == "" || rain < least {
					best, least = f.City, rain
				}
			}
			return best
		},
		script: one(`
			const all = await Promise.all(["Hamburg", "Lyon", "Poznan"].map(city => tools.weather_forecast({ city })));
			const rain = f => f.days.reduce((sum, d) => sum + d.rain_mm, 0);
			return all.sort((a, b) => rain(a) - rain(b))[0].city;
		`, "weather forecast"),
		want: func() (any, []string) {
			return slices.MinFunc([]string{"Hamburg", "Lyon", "Poznan"}, func(a, b string) int { return rainOf(forecast(a)) - rainOf(forecast(b)) }), nil
		},
	}}
}

func customerOf(o order) customer {
	var i int
	_, _ = fmt.Sscanf(o.Customer, "c_%d", &i)
	return customerAt(i - 100)
}

func rainOf(days []day) (mm int) {
	for _, d := range days {
		mm += d.Rain
	}
	return mm
}

// chains are tasks whose calls depend on one another.
func chains() []task {
	return []task{{
		name: "a chain of five",
		asks: "Find the customer whose order ticket T-7 is about, and mail the customer's account manager. Subject: the title of the ticket. Body: the number of the order. Whom did you mail?",
		turns: func(a *agent) any {
			t := ask[ticket](a, call{"ticket_get", args{"id": "T-7"}})[0]
			o := ask[order](a, call{"order_get", args{"id": t.Order}})[0]
			c := ask[customer](a, call{"customer_get", args{"id": o.Customer}})[0]
			s := ask[staff](a, call{"staff_get", args{"name": c.Manager}})[0]
			ask[done](a, call{"mail_send", args{"to": s.Email, "subject": t.Title, "body": fmt.Sprint(t.Order)}})
			return s.Email
		},
		script: one(`
			const ticket = await tools.ticket_get({ id: "T-7" });
			const order = await tools.order_get({ id: ticket.order });
			const customer = await tools.customer_get({ id: order.customer });
			const { email } = await tools.staff_get({ name: customer.manager });
			await tools.mail_send({ to: email, subject: ticket.title, body: String(ticket.order) });
			return email;
		`, "get ticket, order, customer by id", "staff email of a user name", "send email"),
		want: func() (any, []string) {
			t := ticketAt(7)
			to := customerOf(orderAt(t.Order-1000)).Manager + "@office.example"
			return to, []string{fmt.Sprint("mail ", to, " ", t.Title, " ", t.Order)}
		},
	}, {
		name: "wait until done",
		asks: "Wait until deployment d-88 has ended, and tell me its state and version.",
		turns: func(a *agent) any {
			for {
				if d := ask[deployOut](a, call{"deploy_status", args{"id": "d-88"}})[0]; d.State != "running" {
					return args{"state": d.State, "version": d.Version}
				}
			}
		},
		script: one(`
			for (;;) {
				const { state, version } = await tools.deploy_status({ id: "d-88" });
				if (state !== "running") return { state, version };
				await sleep(50);
			}
		`, "deployment status"),
		want: nothing(args{"state": "succeeded", "version": "v8.2.1"}),
	}, {
		name: "retries",
		asks: "Where are the parcels " + strings.Join(parcels(), ", ") + "? The carrier is often busy.",
		turns: func(a *agent) any {
			places := map[string]string{}
			for todo := parcels(); len(todo) > 0; {
				var calls []call
				for _, p := range todo {
					calls = append(calls, call{"parcel_track", args{"parcel": p}})
				}
				var busy []string
				for i, one := range a.turn(calls...) {
					if one.failed {
						busy = append(busy, todo[i])
						continue
					}
					p := decode[parcelOut](a, one)
					places[p.Parcel] = p.Place
				}
				todo = busy
			}
			return places
		},
		script: one(`
			const track = async parcel => {
				for (let i = 0; ; i++) {
					try {
						return [parcel, (await tools.parcel_track({ parcel })).place];
					} catch (e) {
						if (i === 5) throw e;
						await sleep(50);
					}
				}
			};
			const parcels = [`+quoted(parcels())+`];
			return Object.fromEntries(await Promise.all(parcels.map(track)));
		`, "track parcel"),
		want: func() (any, []string) {
			places := map[string]string{}
			for i, p := range parcels() {
				places[p] = parcelAt(p, 10000+37*(i+3)).Place
			}
			return places, nil
		},
	}}
}

func parcels() (all []string) {
	for i := range 8 {
		all = append(all, orderAt(i+3).Parcel)
	}
	return all
}

func quoted(all []string) string { return `"` + strings.Join(all, `", "`) + `"` }
