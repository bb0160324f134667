package schedule

import (
	"math/bits"
	"time"
)

// A Spec says when a recurring schedule fires, as engine.Schedule describes it.
// Bit n of a field is set if the field matches n. The zero Spec never fires.
type Spec struct {
	minutes, hours, days, months, weekdays uint64
	either                                 bool // a day matches if days or weekdays match; otherwise both must
	interval                               bool // the hour field contains a "*": fires again in an hour that occurs twice
	zone                                   *time.Location
}

// Next returns the first firing after the given time, or false if the schedule does not
// fire within [Years].
func (c Spec) Next(after time.Time) (time.Time, bool) {
	if c.interval {
		return c.nextInterval(after)
	}

	for wall, ok := c.nextWall(wallClock(after, c.zone)); ok; wall, ok = c.nextWall(wall.Add(time.Minute)) {
		if at := onClock(wall, c.zone); at.After(after) {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}

// nextInterval returns the first time after the given one at which the clock shows a
// time that matches: as in cron(8), interval jobs continue when the clock is set back.
func (c Spec) nextInterval(after time.Time) (time.Time, bool) {
	wall, ok := c.nextWall(wallClock(after, c.zone).Add(time.Minute))
	for ok {
		now := offset(after, c.zone)
		at := wall.Add(-now)
		if first := onClock(wall, c.zone); first.After(after) && first.Before(at) && wallClock(first, c.zone).Equal(wall) {
			return first.UTC(), true // the clock is ahead for some months, and shows the time twice
		}
		if offset(at, c.zone) == now {
			return at, true
		}

		after = changeBetween(after, at, c.zone) // until then the clock shows no match
		wall, ok = c.nextWall(wallClock(after.Add(time.Minute-1), c.zone))
	}
	return time.Time{}, false
}

// wallClock returns what the clock of a zone shows at a given time, to the minute, as a
// time in UTC.
func wallClock(at time.Time, zone *time.Location) time.Time {
	at = at.In(zone)
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
}

// nextWall returns the first matching time on a clock, from a given minute on, or false
// if there is none within [Years].
func (c Spec) nextWall(from time.Time) (time.Time, bool) {
	day := from.Truncate(24 * time.Hour)
	first := int(from.Sub(day) / time.Minute)

	for last := day.AddDate(Years, 0, 0); !day.After(last); day, first = c.nextDay(day), 0 {
		if !c.matches(day) {
			continue
		}
		if minute := c.nextMinute(first); minute >= 0 {
			return day.Add(time.Duration(minute) * time.Minute), true
		}
	}
	return time.Time{}, false
}

// matches reports whether the schedule fires on a day.
func (c Spec) matches(day time.Time) bool {
	inMonth := c.days>>day.Day()&1 == 1
	inWeek := c.weekdays>>day.Weekday()&1 == 1
	return c.months>>day.Month()&1 == 1 && (inMonth && inWeek || c.either && (inMonth || inWeek))
}

// nextDay returns the day after day, or the first day of the next month if no day of
// this month matches.
func (c Spec) nextDay(day time.Time) time.Time {
	if c.months>>day.Month()&1 == 0 {
		return time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return day.AddDate(0, 0, 1)
}

// nextMinute returns the first matching minute of a day, starting at from; -1
// if there is none.
func (c Spec) nextMinute(from int) int {
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

// onClock returns when the clock of a zone first shows the time wall, which is given in
// UTC. If the clock skips that time, it returns when it first shows a later one.
// [time.Date] does not say whether there are two such times or none.
func onClock(wall time.Time, zone *time.Location) time.Time {
	const wide = 26 * time.Hour // no clock is farther from UTC, or changes by more
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

// changeBetween returns when the clock of a zone changes between two times, to the
// second. [time.Time.ZoneBounds] is wrong on the last day of leap years from 2040 on.
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

// Closest returns the shortest time between two firings within [Years] after
// from, by the clock of the zone. It returns apart if no time is shorter.
func (c Spec) Closest(from time.Time, apart time.Duration) time.Duration {
	first := c.nextMinute(0)
	last := first
	for minute := c.nextMinute(first + 1); minute >= 0; minute = c.nextMinute(minute + 1) {
		apart = min(apart, time.Duration(minute-last)*time.Minute)
		last = minute
	}

	overnight := time.Duration(24*60-last+first) * time.Minute
	if overnight < apart && c.neighbors(from) {
		return overnight
	}
	return apart
}

// neighbors reports whether the schedule fires on two days in a row.
func (c Spec) neighbors(from time.Time) bool {
	day := from.UTC().Truncate(24 * time.Hour)
	before := false
	for last := day.AddDate(Years, 0, 0); !day.After(last); day = day.AddDate(0, 0, 1) {
		matches := c.matches(day)
		if matches && before {
			return true
		}
		before = matches
	}
	return false
}
