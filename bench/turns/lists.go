package main

import (
	"cmp"
	"fmt"
	"slices"
)

// lists are tasks that need a little of much.
func lists() []task {
	return []task{{
		name: "filter a list",
		asks: "Which invoices of March 2026 are not paid, more than 30 days late, and over 900 EUR? Give me their ids.",
		turns: func(a *agent) any {
			return late(ask[invoicesOut](a, call{"invoices_list", args{"month": "2026-03"}})[0].Invoices)
		},
		script: one(`
			const { invoices } = await tools.invoices_list({ month: "2026-03" });
			return invoices.filter(i => !i.paid && i.days_late > 30 && i.amount > 900).map(i => i.id);
		`, "list invoices of a month"),
		want: func() (any, []string) { return late(list(invoices, invoiceAt, all)), nil },
	}, {
		name: "loop over pages",
		asks: "What is the total of all shipped orders, for each currency?",
		turns: func(a *agent) any {
			orders, _ := allOrders(a, args{"status": "shipped"})
			return totals(orders)
		},
		script: one(`
			const sums = {};
			for (let page = 1, pages = 1; page <= pages; page++) {
				const r = await tools.orders_list({ status: "shipped", page });
				pages = r.pages;
				for (const o of r.orders) sums[o.currency] = (sums[o.currency] ?? 0) + o.total;
			}
			for (const c in sums) sums[c] = Math.round(sums[c] * 100) / 100;
			return sums;
		`, "list orders by status"),
		want: func() (any, []string) {
			return totals(list(orders, orderAt, func(o order) bool { return o.Status == "shipped" })), nil
		},
	}, {
		name: "join two lists",
		asks: "How many orders has each customer in Germany, by name? Leave out those who have none.",
		turns: func(a *agent) any {
			found := ask[customersOut](a, call{"customers_list", args{"country": "DE"}})[0].Customers
			var calls []call
			for _, c := range found {
				calls = append(calls, call{"orders_list", args{"customer": c.ID}})
			}
			counts := map[string]int{}
			for i, r := range ask[ordersOut](a, calls...) {
				if n := len(r.Orders); n > 0 {
					counts[found[i].Name] += n
				}
			}
			return counts
		},
		script: one(`
			const { customers } = await tools.customers_list({ country: "DE" });
			const counts = {};
			await Promise.all(customers.map(async c => {
				const { orders } = await tools.orders_list({ customer: c.id });
				if (orders.length) counts[c.name] = (counts[c.name] ?? 0) + orders.length;
			}));
			return counts;
		`, "list customers by country", "list orders by customer"),
		want: func() (any, []string) {
			counts := map[string]int{}
			for _, o := range list(orders, orderAt, all) {
				if c := customerOf(o); c.Country == "DE" {
					counts[c.Name]++
				}
			}
			return counts, nil
		},
	}, {
		name: "aggregate and convert",
		asks: "What do all open orders come to in EUR, at the rates of 2026-03-31?",
		turns: func(a *agent) any {
			var along []call
			for _, c := range []string{"USD", "GBP", "CHF"} {
				along = append(along, call{"exchange_rate", args{"from": c, "to": "EUR", "date": "2026-03-31"}})
			}
			orders, answers := allOrders(a, args{"status": "open"}, along...)
			at := map[string]float64{"EUR": 1}
			for i, one := range answers {
				at[[]string{"USD", "GBP", "CHF"}[i]] = decode[rateOut](a, one).Rate
			}
			return inEuros(orders, at)
		},
		script: one(`
			const orders = [];
			for (let page = 1, pages = 1; page <= pages; page++) {
				const r = await tools.orders_list({ status: "open", page });
				pages = r.pages;
				orders.push(...r.orders);
			}
			const rates = { EUR: 1 };
			for (const from of new Set(orders.map(o => o.currency))) {
				rates[from] ??= (await tools.exchange_rate({ from, to: "EUR", date: "2026-03-31" })).rate;
			}
			return Math.round(orders.reduce((sum, o) => sum + o.total * rates[o.currency], 0) * 100) / 100;
		`, "list orders by status", "exchange rate of currencies"),
		want: func() (any, []string) {
			return inEuros(list(orders, orderAt, func(o order) bool { return o.Status == "open" }), rates), nil
		},
	}, {
		name: "a script that fails at first",
		asks: "How many customers has each plan?",
		turns: func(a *agent) any {
			first := ask[customersOut](a, call{"customers_list", args{}})[0]
			found := first.Customers
			for _, r := range ask[customersOut](a, others("customers_list", first.Pages, nil)...) {
				found = append(found, r.Customers...)
			}
			return plans(found)
		},
		script: func(a *agent) any {
			a.search("list customers by plan")
			a.fails(`
			const counts = {};
			for (let page = 1; ; page++) {
				const { items } = await tools.customers_list({ page });
				if (!items.length) return counts;
				for (const c of items) counts[c.plan] = (counts[c.plan] ?? 0) + 1;
			}
			`)
			return a.exec(`
			const counts = {};
			for (let page = 1; ; page++) {
				const { customers } = await tools.customers_list({ page });
				if (!customers.length) return counts;
				for (const c of customers) counts[c.plan] = (counts[c.plan] ?? 0) + 1;
			}
			`)
		},
		want: func() (any, []string) { return plans(list(customers, customerAt, all)), nil },
	}}
}

// all fits anything.
func all[T any](T) bool { return true }

func late(from []invoice) []string {
	ids := []string{}
	for _, i := range from {
		if !i.Paid && i.DaysLate > 30 && i.Amount > 900 {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func totals(of []order) map[string]float64 {
	sums := map[string]float64{}
	for _, o := range of {
		sums[o.Currency] += o.Total
	}
	for c, sum := range sums {
		sums[c] = cents(sum)
	}
	return sums
}

func inEuros(of []order, at map[string]float64) float64 {
	sum := 0.0
	for _, o := range of {
		sum += o.Total * at[o.Currency]
	}
	return cents(sum)
}

func plans(of []customer) map[string]int {
	counts := map[string]int{}
	for _, c := range of {
		counts[c.Plan]++
	}
	return counts
}

// many are tasks of many calls at once.
func many() []task {
	return []task{{
		name: "forty calls at once",
		asks: "Which of the products SKU-00 to SKU-19 have to be ordered again, because what is on hand and not reserved is below the level, in Hamburg or Lyon?",
		turns: func(a *agent) any {
			var calls []call
			for i := range 20 {
				for _, w := range warehouses {
					calls = append(calls, call{"stock_get", args{"sku": sku(i), "warehouse": w}})
				}
			}
			return short(ask[stock](a, calls...))
		},
		script: one(`
			const skus = Array.from({ length: 20 }, (_, i) => "SKU-" + String(i).padStart(2, "0"));
			const calls = skus.flatMap(sku => ["Hamburg", "Lyon"].map(warehouse => tools.stock_get({ sku, warehouse })));
			const low = (await Promise.all(calls)).filter(s => s.on_hand - s.reserved < s.reorder_level);
			return low.map(s => s.sku + " " + s.warehouse);
		`, "stock of a product in a warehouse"),
		want: func() (any, []string) {
			var of []stock
			for i := range 20 {
				for _, w := range warehouses {
					of = append(of, stockAt(i, w))
				}
			}
			return short(of), nil
		},
	}, {
		name: "act on each of a list",
		asks: "Refund in full the orders of all tickets with the label damaged, with the reason damaged. Which orders are they?",
		turns: func(a *agent) any {
			var gets, refunds []call
			for _, t := range ask[ticketsOut](a, call{"tickets_list", args{"label": "damaged"}})[0].Tickets {
				gets = append(gets, call{"order_get", args{"id": t.Order}})
			}
			numbers := []int{}
			for _, o := range ask[order](a, gets...) {
				refunds = append(refunds, call{"order_refund", args{"order": o.ID, "amount": o.Total, "reason": "damaged"}})
				numbers = append(numbers, o.ID)
			}
			ask[done](a, refunds...)
			return numbers
		},
		script: one(`
			const { tickets } = await tools.tickets_list({ label: "damaged" });
			const orders = await Promise.all(tickets.map(t => tools.order_get({ id: t.order })));
			for (const o of orders) await tools.order_refund({ order: o.id, amount: o.total, reason: "damaged" });
			return orders.map(o => o.id);
		`, "list tickets with a label", "get order by number", "refund order"),
		want: func() (any, []string) {
			numbers, effects := []int{}, []string{}
			for _, t := range list(30, ticketAt, func(t ticket) bool { return t.Label == "damaged" }) {
				o := orderAt(t.Order - 1000)
				numbers, effects = append(numbers, o.ID), append(effects, fmt.Sprint("refund ", o.ID, " ", o.Total))
			}
			slices.Sort(effects)
			return numbers, effects
		},
	}}
}

var warehouses = []string{"Hamburg", "Lyon"}

func short(of []stock) []string {
	low := []string{}
	for _, s := range of {
		if s.OnHand-s.Reserved < s.Level {
			low = append(low, s.SKU+" "+s.Warehouse)
		}
	}
	return low
}

// most is the endpoint with the most errors of the server.
func most(counts map[string]int) args {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	return args{"endpoint": names[0], "errors": counts[names[0]]}
}
