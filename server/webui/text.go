package webui

import (
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// cut cuts a text to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// number formats a number for people, with commas between thousands.
func number[T int | int64 | float64](v T) string {
	f := float64(v)
	if math.Abs(f) >= 1e15 {
		return strconv.FormatFloat(f, 'g', 4, 64)
	}
	return humanize.Commaf(math.Round(f*100) / 100)
}

// seconds formats a duration for people, in at most two units.
func seconds(n float64) string {
	s := int64(n)
	for _, u := range []struct {
		size int64
		name string
		part int64
		of   string
	}{{86400, "d", 3600, "h"}, {3600, "h", 60, "min"}, {60, "min", 1, "s"}} {
		if rest := s % u.size / u.part; s >= u.size && rest > 0 {
			return fmt.Sprintf("%d %s %d %s", s/u.size, u.name, rest, u.of)
		} else if s >= u.size {
			return fmt.Sprintf("%d %s", s/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d s", s)
}

// duration formats the duration of a call.
func duration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return number(float64(d)/float64(time.Millisecond)) + " ms"
	case d < time.Second:
		return number(d.Milliseconds()) + " ms"
	case d < time.Minute:
		return number(d.Round(10*time.Millisecond).Seconds()) + " s"
	}
	return seconds(d.Seconds())
}

// A moment is a time as a page shows it.
type moment struct {
	ISO, Text string
	Distance  string // distance from now
}

// Clock returns the time of day, to the minute.
func (m *moment) Clock() string {
	if m == nil {
		return "–"
	}
	return m.Text[len("2006-01-02 "):][:len("15:04")]
}

// newMoment returns nil for the zero time.
func newMoment(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &moment{t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05"), distance(t, time.Now())}
}

// distance returns how far away a time is, to the minute or in steps of ten seconds, so
// that it rarely changes.
func distance(t, now time.Time) string {
	d, format := t.Sub(now), "in %d %s"
	if d < 0 {
		d, format = -d, "%d %s ago"
	}

	m := int64(d / time.Minute)
	switch {
	case d < 10*time.Second && !t.After(now):
		return "just now"
	case m < 1 && t.Before(now):
		return fmt.Sprintf(format, int64(d/(10*time.Second))*10, "s")
	case m < 1:
		return "within a minute"
	case m < 60:
		return fmt.Sprintf(format, m, "min")
	case m < 48*60:
		return fmt.Sprintf(format, m/60, "h")
	}
	return fmt.Sprintf(format, m/(24*60), "d")
}
