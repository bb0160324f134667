package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/toolhost/toolhost/server/httpapi"
)

// follower is told what a run does.
type follower struct {
	output func(httpapi.Output)
	run    func(httpapi.Run) // its status or its progress is new
}

// follow follows a run until it has ended, and returns it. A server that goes
// away and comes back, as one that is updated does, is waited for: the output
// goes on where it was.
func (c *client) follow(ctx context.Context, b *bar, id string, f follower) (httpapi.Run, error) {
	var last string // the id of the last event
	retry := again{bar: b}
	for {
		resp, err := c.send(ctx, http.MethodGet, "/v1/runs/"+id+"/output", nil, "Accept", "text/event-stream", "Last-Event-ID", last)
		if err == nil {
			retry.there()
			var run *httpapi.Run
			if run, err = readRun(resp.Body, &last, f); run != nil {
				return *run, nil
			}
			err = c.broken(ctx, err)
		}
		if err := retry.try(ctx, err); err != nil {
			return httpapi.Run{}, err
		}
	}
}

// readRun reads events until the one that tells the end.
func readRun(body io.ReadCloser, last *string, f follower) (*httpapi.Run, error) {
	defer body.Close()
	r := bufio.NewReader(body)
	for {
		e, err := readEvent(r)
		if err != nil {
			return nil, err
		}
		switch e.name {
		case httpapi.EventOutput:
			var out httpapi.Output
			if err := json.Unmarshal(e.data, &out); err != nil {
				return nil, err
			}
			if f.output != nil {
				f.output(out)
			}
		case httpapi.EventRun, httpapi.EventEnd:
			run := new(httpapi.Run)
			if err := json.Unmarshal(e.data, run); err != nil {
				return nil, err
			}
			if e.name == httpapi.EventEnd {
				return run, nil
			}
			if f.run != nil {
				f.run(*run)
			}
		}
		if e.id != "" {
			*last = e.id
		}
	}
}

// event is a server-sent event.
type event struct {
	name, id string
	data     []byte
}

// maxEvent bounds an event in bytes: a result is part of the largest.
const maxEvent = 64 << 20

// readEvent reads the next event of a stream, as of the HTML standard, as far
// as our servers use it: a line of data is one line.
func readEvent(r *bufio.Reader) (event, error) {
	var e event
	for {
		line, err := readLine(r)
		if err != nil {
			return e, err
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && e.name != "":
			return e, nil
		case field == "event":
			e.name = value
		case field == "id":
			e.id = value
		case field == "data":
			e.data = []byte(value)
		}
	}
}

func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, more, err := r.ReadLine()
		if err != nil {
			return "", err
		}
		if line = append(line, part...); len(line) > maxEvent {
			return "", fmt.Errorf("an event of more than %d bytes", maxEvent)
		}
		if !more {
			return string(line), nil
		}
	}
}
