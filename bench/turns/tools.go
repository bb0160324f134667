package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/server/gotool"
)

// Arguments and results.
type (
	customersIn struct {
		Country string `json:"country,omitempty" desc:"Two letters"`
		Plan    string `json:"plan,omitempty" enum:"free,pro,enterprise"`
		Page    int    `json:"page,omitempty" default:"1" min:"1"`
	}
	customersOut struct {
		Customers []customer `json:"customers"`
		Pages     int        `json:"pages"`
	}
	idIn struct {
		ID string `json:"id"`
	}
	ordersIn struct {
		Customer string `json:"customer,omitempty" desc:"Customer id"`
		Status   string `json:"status,omitempty" enum:"open,paid,shipped"`
		Page     int    `json:"page,omitempty" default:"1" min:"1"`
	}
	ordersOut struct {
		Orders []order `json:"orders"`
		Pages  int     `json:"pages"`
	}
	orderIn struct {
		ID int `json:"id"`
	}
	invoicesIn struct {
		Month string `json:"month" desc:"Such as 2026-03"`
	}
	invoicesOut struct {
		Invoices []invoice `json:"invoices"`
	}
	refundIn struct {
		Order  int     `json:"order"`
		Amount float64 `json:"amount"`
		Reason string  `json:"reason"`
	}
	skuIn struct {
		SKU string `json:"sku"`
	}
	stockIn struct {
		SKU       string `json:"sku"`
		Warehouse string `json:"warehouse" enum:"Hamburg,Lyon"`
	}
	product struct {
		SKU      string  `json:"sku"`
		Name     string  `json:"name"`
		Supplier string  `json:"supplier"`
		Price    float64 `json:"price"`
	}
	reviewsOut struct {
		Reviews []review `json:"reviews"`
	}
	rateIn struct {
		From string `json:"from" desc:"Currency, three letters"`
		To   string `json:"to" desc:"Currency, three letters"`
		Date string `json:"date" format:"date"`
	}
	rateOut struct {
		Rate float64 `json:"rate"`
	}
	cityIn struct {
		City string `json:"city"`
	}
	forecastOut struct {
		City string `json:"city"`
		Days []day  `json:"days"`
	}
	staff struct {
		Name  string `json:"name"`
		Title string `json:"title"`
		Email string `json:"email"`
	}
	nameIn struct {
		Name string `json:"name" desc:"User name"`
	}
	ticketsIn struct {
		Label string `json:"label"`
	}
	ticketsOut struct {
		Tickets []ticket `json:"tickets"`
	}
	replyIn struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	mailIn struct {
		To      string `json:"to" format:"email"`
		Subject string `json:"subject"`
		Body    string `json:"body"`
	}
	parcelIn struct {
		Parcel string `json:"parcel"`
	}
	parcelOut struct {
		Parcel string `json:"parcel"`
		Place  string `json:"place"`
		Due    string `json:"due"`
	}
	deployOut struct {
		State   string `json:"state" enum:"running,succeeded,failed"`
		Percent int    `json:"percent"`
		Version string `json:"version"`
	}
	folderIn struct {
		Folder string `json:"folder"`
	}
	folderOut struct {
		Paths []string `json:"paths"`
	}
	pathIn struct {
		Path string `json:"path"`
	}
	textOut struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
	logIn struct {
		Service string `json:"service"`
		Page    int    `json:"page,omitempty" default:"1" min:"1"`
	}
	logOut struct {
		Lines []string `json:"lines"`
		Pages int      `json:"pages"`
	}
	done struct {
		OK bool `json:"ok"`
	}
)

// tools are all that the office offers: more than any task needs, as in any office.
func (o *office) tools() []gotool.Tool {
	number := func(id, prefix string, n int) (int, error) {
		i, err := strconv.Atoi(strings.TrimPrefix(id, prefix))
		if err != nil || i < 0 || i >= n {
			return 0, fmt.Errorf("%q was not found", id)
		}
		return i, nil
	}

	return []gotool.Tool{
		tool(o, "customers_list", "Lists customers, by country and plan, 25 on a page.", true, func(in customersIn) (out customersOut, _ error) {
			out.Customers, out.Pages = page(list(customers, customerAt, func(c customer) bool {
				return (in.Country == "" || in.Country == c.Country) && (in.Plan == "" || in.Plan == c.Plan)
			}), in.Page)
			return out, nil
		}),
		tool(o, "customer_get", "Returns a customer by id.", true, func(in idIn) (customer, error) {
			i, err := number(in.ID, "c_", 100+customers)
			return customerAt(i - 100), err
		}),
		tool(o, "orders_list", "Lists orders, by customer and status, 25 on a page, with totals and lines.", true, func(in ordersIn) (out ordersOut, _ error) {
			out.Orders, out.Pages = page(list(orders, orderAt, func(c order) bool {
				return (in.Customer == "" || in.Customer == c.Customer) && (in.Status == "" || in.Status == c.Status)
			}), in.Page)
			return out, nil
		}),
		tool(o, "order_get", "Returns an order by its number.", true, func(in orderIn) (order, error) {
			if in.ID < 1000 || in.ID >= 1000+orders {
				return order{}, fmt.Errorf("order %d was not found", in.ID)
			}
			return orderAt(in.ID - 1000), nil
		}),
		tool(o, "order_refund", "Refunds an amount of an order to the customer. This cannot be undone.", false, func(in refundIn) (done, error) {
			o.does("refund ", in.Order, " ", in.Amount)
			return done{true}, nil
		}),
		tool(o, "invoices_list", "Lists all invoices of a month.", true, func(in invoicesIn) (invoicesOut, error) {
			return invoicesOut{list(invoices, invoiceAt, func(invoice) bool { return true })}, nil
		}),
		tool(o, "product_get", "Returns a product by its SKU.", true, func(in skuIn) (product, error) {
			i, err := number(in.SKU, "SKU-", 20)
			return product{in.SKU, pick(i, 61, "Lamp", "Chair", "Desk", "Shelf"), pick(i, 62, "Nordlicht", "Holzwerk", "Atelier"), float64(1900 + 100*i)}, err
		}),
		tool(o, "product_reviews", "Lists the reviews of a product.", true, func(in skuIn) (reviewsOut, error) {
			i, err := number(in.SKU, "SKU-", 20)
			return reviewsOut{reviewsOf(i)}, err
		}),
		tool(o, "stock_get", "Returns the stock of a product in a warehouse: on hand, reserved, and the level to reorder at.", true, func(in stockIn) (stock, error) {
			i, err := number(in.SKU, "SKU-", 20)
			return stockAt(i, in.Warehouse), err
		}),
		tool(o, "exchange_rate", "Returns the exchange rate of two currencies on a day.", true, func(in rateIn) (rateOut, error) {
			if rates[in.From] == 0 || rates[in.To] == 0 {
				return rateOut{}, errors.New("no such currency")
			}
			return rateOut{rates[in.From] / rates[in.To]}, nil
		}),
		tool(o, "weather_forecast", "Returns the weather of the next five days in a city.", true, func(in cityIn) (forecastOut, error) {
			return forecastOut{in.City, forecast(in.City)}, nil
		}),
		tool(o, "staff_get", "Returns a colleague by user name, with title and email.", true, func(in nameIn) (staff, error) {
			return staff{in.Name, "Account manager", in.Name + "@office.example"}, nil
		}),
		tool(o, "tickets_list", "Lists the open support tickets with a label.", true, func(in ticketsIn) (ticketsOut, error) {
			return ticketsOut{append([]ticket{}, list(30, ticketAt, func(t ticket) bool { return t.Label == in.Label })...)}, nil
		}),
		tool(o, "ticket_get", "Returns a support ticket by id, with its thread.", true, func(in idIn) (ticket, error) {
			i, err := number(in.ID, "T-", 30)
			t := ticketAt(i)
			t.Thread = threadOf(i)
			return t, err
		}),
		tool(o, "ticket_reply", "Sends a reply to the customer of a support ticket.", false, func(in replyIn) (done, error) {
			o.does("reply ", in.ID, " ", in.Text)
			return done{true}, nil
		}),
		tool(o, "mail_send", "Sends an email.", false, func(in mailIn) (done, error) {
			o.does("mail ", in.To, " ", in.Subject, " ", in.Body)
			return done{true}, nil
		}),
		tool(o, "parcel_track", "Returns where a parcel is and when it is due. Fails while the carrier is busy: then try again.", true, o.track),
		tool(o, "deploy_status", "Returns the state of a deployment by id.", true, func(in idIn) (deployOut, error) {
			if n := o.times(in.ID); n < deployTimes {
				return deployOut{"running", 100 * n / deployTimes, "v8.2.1"}, nil
			}
			return deployOut{"succeeded", 100, "v8.2.1"}, nil
		}),
		tool(o, "documents_list", "Lists the documents in a folder.", true, func(in folderIn) (folderOut, error) {
			return folderOut{append([]string{}, list(len(paths), func(i int) string { return paths[i] }, func(p string) bool { return strings.HasPrefix(p, in.Folder+"/") })...)}, nil
		}),
		tool(o, "document_read", "Returns the text of a document.", true, func(in pathIn) (textOut, error) {
			text, err := document(in.Path)
			return textOut{in.Path, text}, err
		}),
		tool(o, "log_read", "Returns the access log of a service, 80 lines on a page.", true, func(in logIn) (logOut, error) {
			return logOut{logPage(in.Page), logPages}, nil
		}),
	}
}

// track fails once or twice for some parcels.
func (o *office) track(in parcelIn) (parcelOut, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(in.Parcel, "PX"))
	if err != nil {
		return parcelOut{}, errors.New("no such parcel")
	}
	if o.times(in.Parcel) <= mixed(i, 71, 3) {
		return parcelOut{}, errors.New("the carrier is busy: try again")
	}
	return parcelAt(in.Parcel, i), nil
}

func parcelAt(name string, i int) parcelOut {
	return parcelOut{name, pick(i, 72, "Leipzig", "Lyon", "Poznan", "on the road"), fmt.Sprintf("2026-03-%02d", 3+mixed(i, 73, 9))}
}
