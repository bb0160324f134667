package schedule

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests name many zones, on any host

	"github.com/stretchr/testify/require"
)

func mustCron(t testing.TB, text, zone string) Spec {
	t.Helper()
	loc, err := Zone(zone)
	require.NoError(t, err)
	spec, err := Parse(text, loc)
	require.NoError(t, err)
	return spec
}

// local parses a time such as "2006-01-02 15:04 -0700".
func local(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04 -0700", text)
	require.NoError(t, err)
	return at
}

// cronTimes lists the firings after the given time, as the clock of the zone shows
// them.
func cronTimes(c Spec, after time.Time, count int) []string {
	var found []string
	for range count {
		at, ok := c.Next(after)
		if !ok {
			return append(found, "never")
		}
		found = append(found, at.In(c.zone).Format("2006-01-02 15:04 -0700"))
		after = at
	}
	return found
}

func TestCronFires(t *testing.T) {
	for _, test := range []struct {
		expression, zone, after string
		want                    []string
	}{
		{"*/15 9-10 * * mon-fri", "UTC", "2026-11-20 10:40 +0000", []string{"2026-11-20 10:45 +0000", "2026-11-23 09:00 +0000"}},
		{"0 9 * * *", "Asia/Kolkata", "2026-11-20 03:30 +0000", []string{"2026-11-21 09:00 +0530"}},
		{"30 6 1 jan *", "UTC", "2026-11-20 00:00 +0000", []string{"2027-01-01 06:30 +0000", "2028-01-01 06:30 +0000"}},
		{"0 0 13 * 5", "UTC", "2026-11-01 00:00 +0000", []string{"2026-11-06 00:00 +0000", "2026-11-13 00:00 +0000", "2026-11-20 00:00 +0000", "2026-11-27 00:00 +0000", "2026-12-04 00:00 +0000", "2026-12-11 00:00 +0000", "2026-12-13 00:00 +0000"}},
		{"0 0 */2 * mon", "UTC", "2026-11-01 00:00 +0000", []string{"2026-11-09 00:00 +0000", "2026-11-23 00:00 +0000", "2026-12-07 00:00 +0000"}},
		{"0 0 * * 7", "UTC", "2026-11-20 00:00 +0000", []string{"2026-11-22 00:00 +0000"}},
		{"0 0 * * sat-sun", "UTC", "2026-11-20 00:00 +0000", []string{"2026-11-21 00:00 +0000", "2026-11-22 00:00 +0000", "2026-11-28 00:00 +0000"}},
		{"0 0 * * fri-mon/2", "UTC", "2026-11-20 00:00 +0000", []string{"2026-11-22 00:00 +0000", "2026-11-27 00:00 +0000"}},
		{"0 0 * * 0-7/3", "UTC", "2026-11-22 00:00 +0000", []string{"2026-11-25 00:00 +0000", "2026-11-28 00:00 +0000", "2026-11-29 00:00 +0000"}},
		{"0 22-1 * * *", "UTC", "2026-11-20 21:59 +0000", []string{"2026-11-20 22:00 +0000", "2026-11-20 23:00 +0000", "2026-11-21 00:00 +0000", "2026-11-21 01:00 +0000", "2026-11-21 22:00 +0000"}},
		{"0 0 29 2 *", "UTC", "2096-03-01 00:00 +0000", []string{"2104-02-29 00:00 +0000"}},
		{"0 0 31 * *", "UTC", "2026-01-31 00:00 +0000", []string{"2026-03-31 00:00 +0000"}},
		{"0 0 30 2 *", "UTC", "2026-01-31 00:00 +0000", []string{"never"}},
		{"0 0 31 2,4,6,9,11 *", "UTC", "2026-01-31 00:00 +0000", []string{"never"}},
		{"59 23 31 12 *", "Pacific/Kiritimati", "2026-12-31 09:58 +0000", []string{"2026-12-31 23:59 +1400"}},
	} {
		t.Run(test.expression, func(t *testing.T) {
			require.Equal(t, test.want, cronTimes(mustCron(t, test.expression, test.zone), local(t, test.after), len(test.want)))
		})
	}
}

// A time that the clock skips fires at the first minute that the clock shows after the
// gap; a time that it shows twice fires the first time. An interval fires whenever the
// clock shows a match.
func TestCronAndDaylightSaving(t *testing.T) {
	for _, test := range []struct {
		name, expression, zone, after string
		want                          []string
	}{
		{"Berlin skips", "30 2 * * *", "Europe/Berlin", "2027-03-27 00:00 +0100",
			[]string{"2027-03-27 02:30 +0100", "2027-03-28 03:00 +0200", "2027-03-29 02:30 +0200"}},
		{"Berlin skips many, and fires once", "*/10 2,3 * * *", "Europe/Berlin", "2027-03-28 01:00 +0100",
			[]string{"2027-03-28 03:00 +0200", "2027-03-28 03:10 +0200"}},
		{"Berlin repeats", "30 2 * * *", "Europe/Berlin", "2027-10-30 03:00 +0200",
			[]string{"2027-10-31 02:30 +0200", "2027-11-01 02:30 +0100"}},
		{"Berlin repeats every quarter", "*/30 * * * *", "Europe/Berlin", "2027-10-31 01:45 +0200",
			[]string{"2027-10-31 02:00 +0200", "2027-10-31 02:30 +0200", "2027-10-31 02:00 +0100", "2027-10-31 02:30 +0100", "2027-10-31 03:00 +0100"}},
		{"Berlin, each minute", "* * * * *", "Europe/Berlin", "2027-10-31 02:58 +0200",
			[]string{"2027-10-31 02:59 +0200", "2027-10-31 02:00 +0100", "2027-10-31 02:01 +0100"}},
		{"Berlin skips every other hour", "0 */2 * * *", "Europe/Berlin", "2027-03-27 23:30 +0100",
			[]string{"2027-03-28 00:00 +0100", "2027-03-28 04:00 +0200", "2027-03-28 06:00 +0200"}},
		{"Berlin repeats every other hour", "0 */2 * * *", "Europe/Berlin", "2027-10-31 01:30 +0200",
			[]string{"2027-10-31 02:00 +0200", "2027-10-31 02:00 +0100", "2027-10-31 04:00 +0100"}},
		{"Lord Howe repeats half an hour of every", "*/20 * * * *", "Australia/Lord_Howe", "2027-04-04 01:40 +1100",
			[]string{"2027-04-04 01:40 +1030", "2027-04-04 02:00 +1030"}},
		{"Havana repeats the first hour, asked months before", "30 * 7 11 *", "America/Havana", "2027-01-15 12:00 -0500",
			[]string{"2027-11-07 00:30 -0400", "2027-11-07 00:30 -0500", "2027-11-07 01:30 -0500"}},
		{"Havana skips the first hour, asked months before", "30 * 14 3 *", "America/Havana", "2026-07-15 12:00 -0400",
			[]string{"2027-03-14 01:30 -0400", "2027-03-14 02:30 -0400"}},
		{"New York, once a year", "30 * 7 11 *", "America/New_York", "2027-11-07 01:00 -0400",
			[]string{"2027-11-07 01:30 -0400", "2027-11-07 01:30 -0500", "2027-11-07 02:30 -0500"}},
		{"Berlin, asked in the second of the hours", "30 2 * * *", "Europe/Berlin", "2027-10-31 02:15 +0100",
			[]string{"2027-11-01 02:30 +0100"}},
		{"New York skips", "15 2 14 3 *", "America/New_York", "2027-03-01 00:00 -0500",
			[]string{"2027-03-14 03:00 -0400", "2028-03-14 02:15 -0400"}},
		{"New York repeats", "0,30 1 7 11 *", "America/New_York", "2027-11-01 00:00 -0400",
			[]string{"2027-11-07 01:00 -0400", "2027-11-07 01:30 -0400", "2028-11-07 01:00 -0500"}},
		{"Lord Howe skips half an hour", "*/15 2 * * *", "Australia/Lord_Howe", "2027-10-03 01:50 +1030",
			[]string{"2027-10-03 02:30 +1100", "2027-10-03 02:45 +1100", "2027-10-04 02:00 +1100"}},
		{"Lord Howe repeats half an hour", "*/15 1 * * *", "Australia/Lord_Howe", "2027-04-04 01:20 +1100",
			[]string{"2027-04-04 01:30 +1100", "2027-04-04 01:45 +1100", "2027-04-05 01:00 +1030"}},
		{"Apia skips a day", "0 12 * * *", "Pacific/Apia", "2011-12-29 11:00 -1000",
			[]string{"2011-12-29 12:00 -1000", "2011-12-31 00:00 +1400", "2011-12-31 12:00 +1400"}},
		{"Apia skips the only day", "30 18 30 12 *", "Pacific/Apia", "2011-12-01 00:00 -1000",
			[]string{"2011-12-31 00:00 +1400", "2012-12-30 18:30 +1400"}},
		{"Kwajalein, too", "0 12 21 8 *", "Pacific/Kwajalein", "1993-08-01 00:00 -1200",
			[]string{"1993-08-22 00:00 +1200", "1994-08-21 12:00 +1200"}},
		{"Sao Paulo has no midnight", "0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00 -0300",
			[]string{"2018-11-04 01:00 -0200", "2018-11-05 00:00 -0200"}},
		{"Dublin's winter is the exception", "30 1 * * *", "Europe/Dublin", "2027-10-30 12:00 +0100",
			[]string{"2027-10-31 01:30 +0100", "2027-11-01 01:30 +0000"}},
		{"Troll moves by two hours", "0 2 * * *", "Antarctica/Troll", "2027-03-27 12:00 +0000",
			[]string{"2027-03-28 03:00 +0200", "2027-03-29 02:00 +0200"}},
		{"Berlin on a day ZoneBounds forgets", "0 12 * * *", "Europe/Berlin", "2040-12-30 12:00 +0100",
			[]string{"2040-12-31 12:00 +0100", "2041-01-01 12:00 +0100"}},
		{"Caracas moved by half an hour at no full one", "45 2 * * *", "America/Caracas", "2016-04-30 12:00 -0430",
			[]string{"2016-05-01 03:00 -0400", "2016-05-02 02:45 -0400"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := cronTimes(mustCron(t, test.expression, test.zone), local(t, test.after), len(test.want))
			require.Equal(t, test.want, got)
		})
	}
}

// The same rule in other words: go through all minutes, and fire whenever the clock
// first shows a time that matches, or has jumped over one; an interval fires whenever
// the clock shows a time that matches.
func TestCronIsWhatAClockShows(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	field := func(low, high int) string {
		from, to := low+random.IntN(high-low+1), low+random.IntN(high-low+1)
		switch random.IntN(5) {
		case 0:
			return strconv.Itoa(from)
		case 1:
			return strconv.Itoa(min(from, to)) + "-" + strconv.Itoa(max(from, to))
		case 2:
			return strconv.Itoa(from) + "," + strconv.Itoa(to)
		case 3:
			return "*/" + strconv.Itoa(2+random.IntN((high-low)/2))
		default:
			return "*"
		}
	}
	changes := []struct{ zone, around string }{
		{"Europe/Berlin", "2027-03-28 02:00 +0100"}, {"Europe/Berlin", "2027-10-31 02:00 +0100"},
		{"America/New_York", "2027-03-14 02:00 -0500"}, {"America/New_York", "2027-11-07 01:00 -0500"},
		{"Australia/Lord_Howe", "2027-04-04 02:00 +1100"}, {"Australia/Lord_Howe", "2027-10-03 02:00 +1030"},
		{"Pacific/Apia", "2011-12-30 00:00 -1000"}, {"Pacific/Kwajalein", "1993-08-21 00:00 -1200"},
		{"Antarctica/Troll", "2027-03-28 01:00 +0000"}, {"Africa/Casablanca", "2027-02-07 02:00 +0000"},
		{"America/Sao_Paulo", "2018-11-04 00:00 -0300"}, {"America/Caracas", "2016-05-01 02:30 -0430"}, {"UTC", "2027-01-01 00:00 +0000"},
	}
	for _, change := range changes {
		for range 40 {
			text := strings.Join([]string{field(0, 59), field(0, 23), "*", "*", field(0, 7)}, " ")
			spec, err := Parse(text, mustCron(t, "* * * * *", change.zone).zone)
			require.NoError(t, err)
			from := local(t, change.around).Add(-30 * time.Hour)
			to := from.Add(60 * time.Hour)
			want := clockFirings(spec, from, to)
			var got []time.Time
			for at, ok := spec.Next(from); ok && !at.After(to); at, ok = spec.Next(at) {
				got = append(got, at)
			}
			require.Equal(t, want, got, "%s in %s", text, change.zone)
		}
	}
}

func clockFirings(c Spec, from, to time.Time) (found []time.Time) {
	matches := func(shown time.Time) bool {
		return c.matches(shown) && c.hours>>shown.Hour()&1 == 1 && c.minutes>>shown.Minute()&1 == 1
	}
	shown := wallClock(from, c.zone)
	for at := from.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
		fires := c.interval && matches(wallClock(at, c.zone))
		for !c.interval && shown.Before(wallClock(at, c.zone)) {
			shown = shown.Add(time.Minute)
			fires = fires || matches(shown)
		}
		if fires {
			found = append(found, at.UTC())
		}
	}
	return found
}

func TestCronRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "has 0 fields",
		"* * * *":                               "has 4 fields",
		"0 0 0 * * *":                           "has 6 fields",
		"@daily":                                "has 1 fields",
		"@every 1h":                             "has 2 fields",
		"TZ=0 * * * *":                          `invalid minute "TZ=0"`,
		"TZ=UTC * * * * *":                      "has 6 fields",
		"CRON_TZ=UTC * * * *":                   `invalid minute "CRON_TZ=UTC"`,
		"60 * * * *":                            "minute: 60 is above the maximum 59",
		"* 24 * * *":                            "hour: 24 is above the maximum 23",
		"* * 0 * *":                             "day of month: 0 is below the minimum 1",
		"* * 32 * *":                            "day of month: 32 is above the maximum 31",
		"* * * 13 *":                            "month: 13 is above the maximum 12",
		"* * * * 8":                             "day of week: 8 is above the maximum 7",
		"*/0 * * * *":                           "minute: the step 0 is not between 1 and 59",
		"*/60 * * * *":                          "minute: the step 60 is not between 1 and 59",
		"H * * * *":                             `invalid minute "H"`,
		"* * L * *":                             `invalid day of month "L"`,
		"* * 15W * *":                           `invalid day of month "15W"`,
		"* * * * fri#3":                         `invalid day of week "fri#3"`,
		"* * ? * *":                             `invalid day of month "?"`,
		"*-5 * * * *":                           `invalid minute "*-5"`,
		"+5 * * * *":                            `invalid minute "+5"`,
		"-5 * * * *":                            `invalid minute "-5"`,
		"1,,2 * * * *":                          `invalid minute ""`,
		", * * * *":                             `invalid minute ""`,
		"1-2-3 * * * *":                         `invalid minute "1-2-3"`,
		"*/2/3 * * * *":                         `invalid minute "*/2/3"`,
		"* * * feb-mon *":                       `invalid month "feb-mon"`,
		"* * * * friday":                        `invalid day of week "friday"`,
		"99999999999999999999 * * * *":          `invalid minute`,
		"\x00 * * * *":                          `invalid minute`,
		"\xff * * * *":                          `invalid minute`,
		strings.Repeat("1,", 300) + "1 * * * *": "longer than 512 bytes",
		strings.Repeat("* ", 1<<20):             "longer than 512 bytes",
	} {
		_, err := Parse(text, time.UTC)
		require.ErrorContains(t, err, want, "%.60q", text)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestCronNamesOfZones(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+12", "GMT0", "Asia/Ho_Chi_Minh", "EST5EDT"} {
		_, err := Zone(name)
		require.NoError(t, err, name)
	}
	for _, name := range []string{
		"", "Local", "localtime", "../etc/passwd", "/etc/localtime", "Europe/../UTC", "Europe//Berlin", `Europe\Berlin`, "Europe/Berlin/",
		"Mars/Olympus", "UTC ", "posix/UTC", "right/UTC", "zone.tab", "\x00", strings.Repeat("A", 1<<20), "+02:00", "Europe",
	} {
		_, err := Zone(name)
		require.Error(t, err, "%.60q", name)
		require.Less(t, len(err.Error()), 200)
	}
}

// How close together firings can be is computed from the expression, not from the first
// few firings.
func TestCronClosest(t *testing.T) {
	from := local(t, "2026-11-21 00:00 +0000")
	for _, test := range []struct {
		expression, zone string
		want             time.Duration
	}{
		{"*/5 * * * *", "UTC", 5 * time.Minute},
		{"*/7 * * * *", "UTC", 4 * time.Minute}, // 56 and 0
		{"0,59 0,23 * * *", "UTC", time.Minute}, // over midnight
		{"0,59 0,23 1 * *", "UTC", 59 * time.Minute},
		{"0 0,22 28,1 2,3 *", "UTC", 2 * time.Hour}, // February 28 and March 1 follow each other in some years
		{"0 0 * * *", "UTC", 24 * time.Hour},
		{"0 0 1 * *", "UTC", 48 * time.Hour},            // none as close as asked for
		{"0 1,3 * * *", "Europe/Berlin", 2 * time.Hour}, // by the clock, which skips 2 on a Sunday in March
	} {
		spec := mustCron(t, test.expression, test.zone)
		require.Equal(t, test.want, spec.Closest(from, 48*time.Hour), "%s in %s", test.expression, test.zone)
	}
	require.Equal(t, time.Minute, mustCron(t, "* * * * *", "UTC").Closest(from, time.Minute))
}

// FuzzCron checks that no expression makes the scheduler panic, hang or fire in the
// past.
func FuzzCron(f *testing.F) {
	for _, text := range []string{"* * * * *", "*/5 9-17 * * mon-fri", "0 0 30 2 *", "TZ=0 * * * *", "@every 1s", "0 0 29 2 1", "1-59/58 22-2/3 28-3 nov-feb sun-7", "fri-mon/2"} {
		f.Add(text, "Europe/Berlin", int64(1_800_000_000))
	}
	f.Add("30 2 * * *", "Australia/Lord_Howe", int64(1_800_000_000))
	f.Add("0 0 * * *", "../../etc/passwd", int64(-62135596800))
	f.Fuzz(func(t *testing.T, text, zone string, unix int64) {
		loc, err := Zone(zone)
		if err != nil {
			loc = time.UTC
		}
		spec, err := Parse(text, loc)
		if err != nil {
			return
		}
		after := time.Unix(unix%(1<<36), 0) // within some thousand years
		at, ok := spec.Next(after)
		if !ok {
			return
		}
		require.True(t, at.After(after))
		require.Zero(t, at.Second())
		require.Less(t, at.Sub(after), (Years*366+2)*24*time.Hour)
		require.LessOrEqual(t, spec.Closest(after, 2*time.Hour), 2*time.Hour)
	})
}

func BenchmarkCronNext(b *testing.B) {
	spec := mustCron(b, "30 2 * * mon-fri", "Europe/Berlin")
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		at, _ = spec.Next(at)
		if at.Year() > 2040 {
			at = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
		}
	}
}
