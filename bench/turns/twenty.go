package main

const twenty = 20

// stockCalls are twenty calls of a tool that answers at once.
func stockCalls() (calls []call) {
	for i := range twenty {
		calls = append(calls, call{"stock_get", args{"sku": sku(i), "warehouse": "Lyon"}})
	}
	return calls
}

// The same by script.
const (
	oneByOne = `
			const low = [];
			for (let i = 0; i < 20; i++) {
				const s = await tools.stock_get({ sku: "SKU-" + String(i).padStart(2, "0"), warehouse: "Lyon" });
				if (s.on_hand - s.reserved < s.reorder_level) low.push(s.sku);
			}
			return low;
	`
	atOnce = `
			const skus = Array.from({ length: 20 }, (_, i) => "SKU-" + String(i).padStart(2, "0"));
			const all = await Promise.all(skus.map(sku => tools.stock_get({ sku, warehouse: "Lyon" })));
			return all.filter(s => s.on_hand - s.reserved < s.reorder_level).map(s => s.sku);
	`
)

// twentyTasks are the ways to make the twenty calls.
func twentyTasks() []task {
	const asks = "Which of the products SKU-00 to SKU-19 have to be ordered again in Lyon?"
	want := func() (any, []string) { return lowInLyon(), nil }
	return []task{{
		name: "one by one", asks: asks, want: want,
		turns: func(a *agent) any {
			var of []stock
			for _, c := range stockCalls() {
				of = append(of, ask[stock](a, c)...)
			}
			return namesOf(of)
		},
		script: one(oneByOne, "stock of a product in a warehouse"),
	}, {
		name: "all at once", asks: asks, want: want,
		turns:  func(a *agent) any { return namesOf(ask[stock](a, stockCalls()...)) },
		script: one(atOnce, "stock of a product in a warehouse"),
	}}
}

// namesOf are the products that are short.
func namesOf(of []stock) []string {
	low := []string{}
	for _, s := range of {
		if s.OnHand-s.Reserved < s.Level {
			low = append(low, s.SKU)
		}
	}
	return low
}

func lowInLyon() []string {
	var of []stock
	for i := range twenty {
		of = append(of, stockAt(i, "Lyon"))
	}
	return namesOf(of)
}
