package background

import (
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

const (
	maxCron     = 512 // bytes of an expression
	maxZone     = 64  // bytes of a time zone's name
	farthest    = 10  // years: what is due later is not scheduled
	cronExample = `five fields, minute hour day-of-month month day-of-week, such as "*/15 9-17 * * mon-fri"`
)

// A cronSpec says when a recurring schedule fires: at which minutes of a
// clock on the wall of its zone. Bit n of a field is set if it matches n.
//
// As in POSIX crontab, a day has to match both of its fields, or one of them
// if neither has a "*" (crontab(5)).
//
// The clock on the wall is the rule: what it skips fires at the first minute
// it shows again, once for all of what was skipped, and what it shows twice
// fires the first time only. So a schedule of every minute pauses while an
// hour comes again; in UTC it does not.
type cronSpec struct {
	minutes, hours, days, months, weekdays uint64
	either                                 bool // days or weekdays, not both
	zone                                   *time.Location
}

// The shapes of a cron field. The numbers are the parser's to judge.
var (
	cronNumbers  = cronShape(`\d{1,2}`)
	cronMonths   = cronShape(`(?:\d{1,2}|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)`)
	cronWeekdays = cronShape(`(?:\d{1,2}|` + strings.Join(weekdayNames[:], "|") + `)`)
	zoneName     = regexp.MustCompile(`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`)
	weekdayNames = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

func cronShape(value string) *regexp.Regexp {
	part := `(?:\*|` + value + `(?:-` + value + `)?)(?:/\d{1,2})?`
	return regexp.MustCompile(`^(?i)` + part + `(?:,` + part + `)*$`)
}

// cronFields are the fields of an expression, in their order.
var cronFields = [...]struct {
	name  string
	shape *regexp.Regexp
}{
	{"minute", cronNumbers},
	{"hour", cronNumbers},
	{"day of month", cronNumbers},
	{"month", cronMonths},
	{"day of week", cronWeekdays},
}

// parseCron reads an expression of five fields. Its work is bounded whatever
// the text. The error is a *[FieldError].
func parseCron(text string, zone *time.Location) (cronSpec, error) {
	if len(text) > maxCron {
		return cronSpec{}, cronError("longer than %d bytes", maxCron)
	}
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) {
		return cronSpec{}, cronError("has %d fields, must have %s", len(fields), cronExample)
	}
	for i, f := range cronFields {
		if !f.shape.MatchString(fields[i]) {
			return cronSpec{}, cronError("%s %q is not one; must have %s", f.name, clip(fields[i], 40), cronExample)
		}
	}
	s, err := parseFields(fields)
	if err != nil {
		return cronSpec{}, whichField(fields, err)
	}
	if err := checkWeekdays(fields[4]); err != nil {
		return cronSpec{}, err
	}
	return cronSpec{
		minutes: s.Minute, hours: s.Hour, days: s.Dom, months: s.Month, weekdays: s.Dow,
		either: !strings.Contains(fields[2], "*") && !strings.Contains(fields[4], "*"),
		zone:   zone,
	}, nil
}

func cronError(format string, args ...any) error {
	return &FieldError{"cron_expression", fmt.Sprintf(format, args...)}
}

func parseFields(fields []string) (*cron.SpecSchedule, error) {
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	if err != nil {
		return nil, err
	}
	s, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("not an expression of five fields: %T", s)
	}
	return spec, nil
}

// whichField names the first field the parser does not take, and says why. err
// is why it does not take all of them.
func whichField(fields []string, err error) error {
	for i, f := range cronFields {
		alone := [...]string{"*", "*", "*", "*", "*"}
		alone[i] = fields[i]
		if _, err := parseFields(alone[:]); err != nil {
			return cronError("%s: %v", f.name, err)
		}
	}
	return cronError("%v", err)
}

// checkWeekdays refuses the steps the parser miscounts: it takes a week that
// goes on after Saturday to have eight days.
func checkWeekdays(field string) error {
	for part := range strings.SplitSeq(strings.ToLower(field), ",") {
		days, _, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(days, "-")
		if stepped && ranged && weekday(from) > weekday(to) {
			return cronError("day of week: %q goes past the end of the week and has a step; list the days", part)
		}
	}
	return nil
}

func weekday(text string) int {
	for n, name := range weekdayNames {
		if text == name {
			return n
		}
	}
	n, _ := strconv.Atoi(text) // the shape is checked
	return n
}

// loadZone finds a time zone by its IANA name. It knows "UTC" on every host;
// others if the host or the program has the time zone database (see package
// time/tzdata). The error is a *[FieldError].
func loadZone(name string) (*time.Location, error) {
	switch {
	case len(name) > maxZone || !zoneName.MatchString(name), name == "Local", name == "localtime",
		strings.HasPrefix(name, "posix/"), strings.HasPrefix(name, "right/"): // what these are depends on the host
		return nil, &FieldError{"timezone", fmt.Sprintf("%q is not an IANA name, such as Europe/Berlin or UTC", clip(name, maxZone))}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &FieldError{"timezone", fmt.Sprintf("unknown time zone %q; must be an IANA name, such as Europe/Berlin or UTC", name)}
	}
	return zone, nil
}

// next returns the first firing after a time, and false if there is none
// within the farthest years.
func (c cronSpec) next(after time.Time) (time.Time, bool) {
	local := after.In(c.zone)
	day := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)
	from := local.Hour()*60 + local.Minute()
	for last := day.AddDate(farthest, 0, 0); !day.After(last); day, from = c.nextDay(day), 0 {
		if !c.matches(day) {
			continue
		}
		for minute := c.nextMinute(from); minute >= 0; minute = c.nextMinute(minute + 1) {
			at := onClock(day.Add(time.Duration(minute)*time.Minute), c.zone)
			if at.After(after) {
				return at.UTC(), true
			}
		}
	}
	return time.Time{}, false
}

// matches reports whether the schedule fires on a day.
func (c cronSpec) matches(day time.Time) bool {
	inMonth := c.days>>day.Day()&1 == 1
	inWeek := c.weekdays>>day.Weekday()&1 == 1
	return c.months>>day.Month()&1 == 1 && (inMonth && inWeek || c.either && (inMonth || inWeek))
}

// nextDay returns the day after day, or the first of the next month if none
// of this one matches.
func (c cronSpec) nextDay(day time.Time) time.Time {
	if c.months>>day.Month()&1 == 0 {
		return time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return day.AddDate(0, 0, 1)
}

// nextMinute returns the first minute of a day, from one on, that matches; -1
// if there is none.
func (c cronSpec) nextMinute(from int) int {
	for hour := from / 60; hour < 24; hour++ {
		if c.hours>>hour&1 == 0 {
			continue
		}
		first := max(0, from-hour*60)
		if minute := bits.TrailingZeros64(c.minutes >> first); first+minute < 60 {
			return hour*60 + first + minute
		}
	}
	return -1
}

// onClock returns when the clock of a zone first shows what wall shows, or if
// it skips that, when it first shows something later. wall is in UTC.
//
// [time.Date] would choose either of two times, and not say whether there are
// two or none.
func onClock(wall time.Time, zone *time.Location) time.Time {
	const wide = 26 * time.Hour // no clock is farther from UTC, or moved by more
	before, after := offset(wall.Add(-wide), zone), offset(wall.Add(wide), zone)
	first := wall.Add(-before)
	if before == after {
		return first
	}
	change := changeBetween(wall.Add(-wide), wall.Add(wide), zone)
	if first.Before(change) {
		return first
	}
	if second := wall.Add(-after); second.After(change) {
		return second
	}
	return change
}

func offset(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// changeBetween finds when the clock of a zone is changed between two times,
// to the second. [time.Time.ZoneBounds] would say, but for the last day of the
// leap years from 2040 on, which it forgets.
func changeBetween(from, to time.Time, zone *time.Location) time.Time {
	old := offset(from, zone)
	low, high := from.Unix(), to.Unix() // the offset is old at low, and not at high
	for high-low > 1 {
		middle := low + (high-low)/2
		if offset(time.Unix(middle, 0), zone) == old {
			low = middle
		} else {
			high = middle
		}
	}
	return time.Unix(high, 0).UTC()
}

// closest returns by how much the two firings closest to each other are apart,
// of those from a time on until the farthest; apart if none are closer.
func (c cronSpec) closest(from time.Time, apart time.Duration) time.Duration {
	if apart <= time.Minute {
		return apart // no clock has a smaller step
	}
	first := c.nextMinute(0)
	last := first
	for minute := c.nextMinute(first + 1); minute >= 0; minute = c.nextMinute(minute + 1) {
		apart = min(apart, time.Duration(minute-last)*time.Minute)
		last = minute
	}
	overnight := time.Duration(24*60-last+first) * time.Minute
	if overnight < apart && c.neighbors(from) {
		apart = overnight
	}
	return c.closestAtChanges(from, apart)
}

// neighbors reports whether the schedule fires on two days in a row.
func (c cronSpec) neighbors(from time.Time) bool {
	day := from.UTC().Truncate(24 * time.Hour)
	before := false
	for last := day.AddDate(farthest, 0, 0); !day.After(last); day = day.AddDate(0, 0, 1) {
		matches := c.matches(day)
		if matches && before {
			return true
		}
		before = matches
	}
	return false
}

// closestAtChanges is closest around the times the zone's clock is changed:
// what is hours apart on it may be minutes apart then.
func (c cronSpec) closestAtChanges(from time.Time, apart time.Duration) time.Duration {
	const day = 24 * time.Hour
	for last := from.AddDate(farthest, 0, 0); from.Before(last); from = from.Add(day) {
		if offset(from, c.zone) == offset(from.Add(day), c.zone) {
			continue
		}
		change := changeBetween(from, from.Add(day), c.zone)
		before, ok := c.next(change.Add(-apart))
		for ok && before.Before(change) {
			var at time.Time
			if at, ok = c.next(before); ok {
				apart = min(apart, at.Sub(before))
			}
			before = at
		}
	}
	return apart
}
