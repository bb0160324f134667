// Plugin probe has a tool for each way in which a call can end, for the tests
// of the adapter.
package main

import (
	"errors"

	"github.com/toolhost/toolhost/guest"
)

type text struct {
	Text string `json:"text"`
}

type none struct{}

func say(_ *guest.Call, in text) (string, error) { return in.Text, nil }

func picture(c *guest.Call, _ none) (guest.None, error) {
	return guest.None{}, errors.Join(
		c.Content(guest.TextBlock("two of them")),
		c.Content(guest.ImageBlock([]byte("not really a picture"), "image/png")),
		c.Content(guest.AudioBlock([]byte("nor a sound"), "audio/wav")),
		c.Content(guest.LinkBlock("https://example.com/a.csv", "a.csv", "text/csv")),
	)
}

func both(c *guest.Call, in text) (text, error) { return in, c.Content(guest.TextBlock("beside it")) }

func refuse(c *guest.Call, in text) (text, error) {
	if err := c.Content(guest.TextBlock("what there was until then")); err != nil {
		return text{}, err
	}
	return text{}, errors.New(in.Text)
}

func connect(*guest.Call, none) (text, error) {
	return text{}, guest.ConnectionRequired(guest.Connection{
		Provider: "calendar", Subject: "ana@example.com", SetupURL: "https://example.com/connect",
	})
}

func crash(c *guest.Call, _ none) (text, error) {
	if err := c.Content(guest.TextBlock("a detail")); err != nil {
		return text{}, err
	}
	panic("a secret detail")
}

var plugin = guest.Plugin{
	Name: "probe", Version: "1.0.0", Description: "Ends in every way.", License: "Apache-2.0",
	Tools: []guest.Tool{
		{Name: "say", Description: "Answers a string.", Handler: guest.Handle(say)},
		{Name: "picture", Description: "Answers content and no value.", Handler: guest.Handle(picture)},
		{Name: "both", Description: "Answers content and a value.", Handler: guest.Handle(both)},
		{Name: "refuse", Description: "Reports an error.", Handler: guest.Handle(refuse)},
		{Name: "connect", Description: "Needs a connection.", Handler: guest.Handle(connect)},
		{Name: "ask", Description: "Needs a person's approval.", Handler: guest.Handle(say), Approval: "required"},
		{Name: "crash", Description: "Breaks.", Handler: guest.Handle(crash)},
	},
}

func init() { guest.Serve(&plugin) }

func main() {}
