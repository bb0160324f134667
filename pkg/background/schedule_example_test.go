package background_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func ExampleManager_Schedule() {
	m, err := background.New(context.Background(), background.Config{
		Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (background.Outcome, error) {
			return background.Outcome{Summary: "checked " + string(run.Args)}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = m.Close(context.Background()) }()
	s, err := m.Schedule(context.Background(), "session", background.ScheduleRequest{
		SpawnRequest: background.SpawnRequest{Tool: "check_site", Args: json.RawMessage(`{"url":"https://example.com"}`)},
		Cron:         "30 8 * * mon-fri", Timezone: "Asia/Tokyo",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.NextAt.Format("15:04"), s.NextAt.After(time.Now()))
	_, err = m.Schedule(context.Background(), "session", background.ScheduleRequest{SpawnRequest: background.SpawnRequest{Tool: "check_site"}, Cron: "0 0 31 2 *"})
	fmt.Println(err)
	// Output:
	// 23:30 true
	// schedule: cron_expression: "0 0 31 2 *" does not fire within 10 years
}
