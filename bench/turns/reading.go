package main

import (
	"regexp"
	"strconv"
	"strings"
)

// reading are tasks with long texts: some that a script can read, and some that only the
// model can.
func reading() []task {
	return []task{{
		name: "extract from long texts",
		asks: `How many days is the notice period of each contract in the folder contracts? Each has a line that begins with "Notice period:".`,
		turns: func(a *agent) any {
			var calls []call
			for _, path := range ask[folderOut](a, call{"documents_list", args{"folder": "contracts"}})[0].Paths {
				calls = append(calls, call{"document_read", args{"path": path}})
			}
			days := map[string]int{}
			for _, d := range ask[textOut](a, calls...) {
				days[d.Path] = noticeOf(d.Text)
			}
			return days
		},
		script: one(`
			const { paths } = await tools.documents_list({ folder: "contracts" });
			const texts = await Promise.all(paths.map(path => tools.document_read({ path })));
			return Object.fromEntries(texts.map(({ path, text }) => [path, Number(text.match(/^Notice period: (\d+)/m)[1])]));
		`, "list documents in a folder", "read text of a document"),
		want: func() (any, []string) {
			days := map[string]int{}
			for i, n := range notices {
				days[paths[i]] = n
			}
			return days, nil
		},
	}, {
		name: "a format unknown before",
		asks: "Which endpoint of the service shop answers with the most errors of the server (5xx) in its log, and how many are they?",
		turns: func(a *agent) any {
			first := ask[logOut](a, call{"log_read", args{"service": "shop"}})[0]
			lines := first.Lines
			for _, r := range ask[logOut](a, others("log_read", first.Pages, args{"service": "shop"})...) {
				lines = append(lines, r.Lines...)
			}
			counts := map[string]int{}
			for _, line := range lines {
				if m := serverError.FindStringSubmatch(line); m != nil {
					counts[m[1]]++
				}
			}
			return most(counts)
		},
		script: func(a *agent) any {
			a.search("read log of a service")
			a.exec(`
			const { lines, pages } = await tools.log_read({ service: "shop" });
			return { pages, lines: lines.slice(0, 3) };
			`)
			return a.exec(`
			const counts = {};
			for (let page = 1, pages = 1; page <= pages; page++) {
				const r = await tools.log_read({ service: "shop", page });
				pages = r.pages;
				for (const line of r.lines) {
					const [, path, status] = line.match(/"\w+ (\S+) [^"]*" (\d+)/);
					if (status >= 500) counts[path] = (counts[path] ?? 0) + 1;
				}
			}
			const [endpoint, errors] = Object.entries(counts).sort((a, b) => b[1] - a[1])[0];
			return { endpoint, errors };
			`)
		},
		want: func() (any, []string) {
			counts := map[string]int{}
			for n := range logPages * logLines {
				if endpoint, status := logEntry(n); status >= 500 {
					counts[endpoint]++
				}
			}
			return most(counts), nil
		},
	}, {
		name: "read, then write",
		asks: "Read the reviews of SKU-05, SKU-07 and SKU-11. If one of them is a matter of safety, mail safety@office.example which product it is and what happens. Which product is it?",
		turns: func(a *agent) any {
			a.mentions(ask[reviewsOut](a, call{"product_reviews", args{"sku": "SKU-05"}}, call{"product_reviews", args{"sku": "SKU-07"}}, call{"product_reviews", args{"sku": "SKU-11"}}), "insulation")
			ask[done](a, call{"mail_send", args{"to": "safety@office.example", "subject": "SKU-07: cable overheats", "body": hot}})
			return "SKU-07"
		},
		script: func(a *agent) any {
			a.search("reviews of a product", "send email")
			a.mentions(a.exec(`
			return await Promise.all(["SKU-05", "SKU-07", "SKU-11"].map(sku => tools.product_reviews({ sku })));
			`), "insulation")
			a.exec(`
			return await tools.mail_send({ to: "safety@office.example", subject: "SKU-07: cable overheats", body: "` + hot + `" });
			`)
			return "SKU-07"
		},
		want: func() (any, []string) {
			return "SKU-07", []string{"mail safety@office.example SKU-07: cable overheats " + hot}
		},
	}, {
		name: "read at each step",
		asks: "Answer ticket T-4, by what the documents in the folder help say. Tell me which document you went by.",
		turns: func(a *agent) any {
			a.mentions(ask[ticket](a, call{"ticket_get", args{"id": "T-4"}}), "tax office")
			a.mentions(ask[folderOut](a, call{"documents_list", args{"folder": "help"}}), "help/invoices.txt")
			a.mentions(ask[textOut](a, call{"document_read", args{"path": "help/invoices.txt"}}), "two working days")
			ask[done](a, call{"ticket_reply", args{"id": "T-4", "text": reply}})
			return "help/invoices.txt"
		},
		script: func(a *agent) any {
			a.search("get ticket by id, reply to ticket", "list, read documents")
			a.mentions(a.exec(`
			return [await tools.ticket_get({ id: "T-4" }), await tools.documents_list({ folder: "help" })];
			`), "tax office", "help/invoices.txt")
			a.mentions(a.exec(`
			return (await tools.document_read({ path: "help/invoices.txt" })).text;
			`), "two working days")
			a.exec(`
			return await tools.ticket_reply({ id: "T-4", text: "` + reply + `" });
			`)
			return "help/invoices.txt"
		},
		want: func() (any, []string) { return "help/invoices.txt", []string{"reply T-4 " + reply} },
	}}
}

const (
	hot   = "A customer reports that after an hour the cable gets so hot at the switch that the insulation softens and smells."
	reply = "Since the invoice is paid, you cannot change its address yourself. Our accounting cancels it and writes a new one to Hafenweg 12, 48155 Münster. This takes two working days. You find it in your account under Billing."
)

// mentions stops an agent that has not read what its next words are based on.
func (a *agent) mentions(read any, words ...string) {
	text := encode(read)
	for _, word := range words {
		if !strings.Contains(text, word) {
			a.stop("the model has not read %q", word)
		}
	}
}

var (
	serverError = regexp.MustCompile(`"GET (\S+) [^"]*" 5\d\d`)
	notice      = regexp.MustCompile(`(?m)^Notice period: (\d+)`)
)

func noticeOf(text string) int {
	m := notice.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
