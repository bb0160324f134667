// Plugin memory remembers facts from one conversation to the next, in the plugin's
// key-value store. It needs the grant "kv".
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/guest"
)

// fact is the stored form of a fact.
type fact struct {
	ID    string    `json:"id" desc:"Names the fact"`
	Text  string    `json:"text"`
	Topic string    `json:"topic"`
	At    time.Time `json:"at" desc:"When it was remembered"`
}

type rememberArgs struct {
	Text  string `json:"text" desc:"What to remember, in a sentence that is understood by itself" min:"1" max:"2000"`
	Topic string `json:"topic,omitempty" desc:"What it is about, such as user or project" pattern:"^[a-z0-9-]{1,40}$" default:"general"`
	Days  int    `json:"days,omitempty" desc:"Forget it after so many days; 0 keeps it" max:"3650"`
}

type recallArgs struct {
	Query string `json:"query,omitempty" desc:"Words that the facts should have; empty returns the newest" max:"200"`
	Topic string `json:"topic,omitempty" desc:"Only facts of this topic" pattern:"^[a-z0-9-]{1,40}$"`
	Limit int    `json:"limit,omitempty" desc:"Return at most so many" min:"1" max:"50" default:"10"`
}

type forgetArgs struct {
	ID    string `json:"id" desc:"The id of the fact, as recall returns it" pattern:"^[0-9a-f]{16}$"`
	Topic string `json:"topic,omitempty" desc:"Its topic" pattern:"^[a-z0-9-]{1,40}$" default:"general"`
}

type facts struct {
	Facts []fact `json:"facts"`
}

type forgotten struct {
	Forgotten bool `json:"forgotten"`
}

// keyOf returns the key of a fact. It begins with the topic, so that all facts on a
// topic can be read by their prefix.
func keyOf(topic, id string) string { return "fact." + topic + ":" + id }

// remember stores a fact under a key derived from its text, so that the same fact is
// stored only once.
func remember(c *guest.Call, in rememberArgs) (fact, error) {
	topic := cmp.Or(in.Topic, "general")
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(strings.ToLower(in.Text)), " ")))
	f := fact{ID: hex.EncodeToString(sum[:8]), Text: in.Text, Topic: topic, At: time.Now().UTC().Truncate(time.Second)}

	err := c.KV().SetFor(keyOf(topic, f.ID), f, time.Duration(in.Days)*24*time.Hour)
	if errors.Is(err, guest.ErrLimit) {
		return f, errors.New("the memory is full: forget some facts first")
	}
	return f, err
}

// recall returns the facts that contain the most words of the query. Of facts with
// equally many, the newest come first.
func recall(c *guest.Call, in recallArgs) (facts, error) {
	prefix := "fact."
	if in.Topic != "" {
		prefix = keyOf(in.Topic, "")
	}
	type match struct {
		fact
		hits int
	}
	var matches []match
	words := strings.Fields(strings.ToLower(in.Query))
	for stored, err := range c.KV().List(prefix) {
		if err != nil {
			return facts{}, err
		}
		var f fact
		if version, err := c.KV().Get(stored.Key, &f); err != nil {
			return facts{}, err
		} else if version == 0 {
			continue // forgotten since the list was made
		}
		m := match{fact: f}
		for _, word := range words {
			if strings.Contains(strings.ToLower(f.Text+" "+f.Topic), word) {
				m.hits++
			}
		}
		if len(words) == 0 || m.hits > 0 {
			matches = append(matches, m)
		}
	}

	slices.SortStableFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.hits, a.hits), b.At.Compare(a.At), cmp.Compare(a.ID, b.ID))
	})
	found := facts{Facts: []fact{}}
	for _, m := range matches[:min(len(matches), cmp.Or(in.Limit, 10))] {
		found.Facts = append(found.Facts, m.fact)
	}
	return found, nil
}

func forget(c *guest.Call, in forgetArgs) (forgotten, error) {
	key := keyOf(cmp.Or(in.Topic, "general"), in.ID)
	var f fact
	version, err := c.KV().Get(key, &f)
	if err != nil || version == 0 {
		return forgotten{}, err
	}
	return forgotten{true}, c.KV().Delete(key)
}

var plugin = guest.Plugin{
	Name: "memory", Version: "1.0.0", Description: "Remembers facts from one conversation to the next.", License: "Apache-2.0",
	Needs: guest.Needs{KV: "read"},
	Tools: []guest.Tool{
		{
			Name: "remember", Description: "Remembers a fact for later conversations. A fact that is known already is not stored twice.", Handler: guest.Handle(remember),
			Needs: guest.Needs{KV: "write", Clock: true},
			Hints: guest.Hints{Idempotent: true, OpenWorld: new(false), Destructive: new(false)},
		},
		{
			Name: "recall", Description: "Finds remembered facts by their words.", Handler: guest.Handle(recall),
			Hints: guest.Hints{Readonly: true, Idempotent: true, OpenWorld: new(false)},
		},
		{
			Name: "forget", Description: "Forgets a fact.", Handler: guest.Handle(forget),
			Needs: guest.Needs{KV: "write"},
			Hints: guest.Hints{Idempotent: true, OpenWorld: new(false)},
		},
	},
}

func init() { guest.Serve(&plugin) }

func main() {}
