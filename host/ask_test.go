package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

const question = `{"questions":{"name":{"message":"Who are you?","schema":{"type":"object"}}}}`

func TestAsk(t *testing.T) {
	ana := func(_ context.Context, q abi.Questions) (abi.Answers, error) {
		answers := abi.Answers{Answers: map[string]abi.Answer{}}
		for key, one := range q.Questions {
			content, _ := json.Marshal(one.Message)
			answers.Answers[key] = abi.Answer{Action: abi.AnswerAccept, Content: content}
		}
		return answers, nil
	}
	failing := func(err error) func(context.Context, abi.Questions) (abi.Answers, error) {
		return func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, err }
	}
	for _, c := range []struct {
		name, request string
		granted       bool
		ask           func(context.Context, abi.Questions) (abi.Answers, error)
		code          int32 // 0 is the length of the response
		response      string
	}{
		{"answered", question, true, ana, 0, `{"answers":{"name":{"action":"accept","content":"Who are you?"}}}`},
		{"not granted", question, false, ana, abi.CallDenied, `{"code":"denied","message":"ask is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"}`},
		{"nobody there", question, true, nil, abi.CallDenied, `{"code":"denied","message":"nobody can be asked here"}`},
		{"nobody there, and no question", `{"questions":{}}`, true, nil, abi.CallInvalid, `{"code":"invalid","message":"not questions for the user: found 0, expected 1 to 8"}`},
		{"the client cannot", question, true, failing(fmt.Errorf("%w: no elicitation", host.ErrDenied)), abi.CallDenied, `{"code":"denied","message":"no elicitation"}`},
		{"an invalid schema", question, true, failing(fmt.Errorf("%w: name: no schema", abi.ErrQuestions)), abi.CallInvalid, `{"code":"invalid","message":"not questions for the user: name: no schema"}`},
		{"an answer that does not fit", question, true, failing(fmt.Errorf("%w name", abi.ErrAnswer)), abi.CallFailed, `{"code":"failed","message":"not an answer to the question name"}`},
		{"the client is gone", question, true, failing(errors.New("broken pipe to /secret")), abi.CallFailed, `{"code":"failed","message":"the question could not be asked"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, ask("ask", c.request), host.Call{Services: host.Services{Ask: c.ask}, Policy: host.Policy{Grant: host.Grant{Ask: c.granted}}})
			require.NoError(t, o.err)
			if c.code == 0 {
				c.code = int32(len(c.response))
			}
			require.Equal(t, []int32{c.code}, o.codes())
			if c.response != "" {
				require.JSONEq(t, c.response, string(o.Value))
			}
		})
	}
}

// A call that waits for its user ends with its time, and gives way to a stop.
func TestAskEnds(t *testing.T) {
	wait := func(ctx context.Context, _ abi.Questions) (abi.Answers, error) {
		<-ctx.Done()
		return abi.Answers{}, ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		o := run(t, ask("ask", question), host.Call{Services: host.Services{Ask: wait}, Policy: host.Policy{Grant: host.Grant{Ask: true}, Timeout: time.Minute}})
		require.Equal(t, abi.LimitTime, o.Limit)
		require.Equal(t, "time limit of 1m0s reached while the call waited: its user had not answered its question", o.Error)
	})
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stopping) })
		o := run(t, ask("ask", question), host.Call{Services: host.Services{Ask: wait}, Stopping: stopping, Policy: host.Policy{Grant: host.Grant{Ask: true}, Timeout: time.Minute}})
		require.Equal(t, abi.CallCanceled, o.codes()[0])
	})
}
