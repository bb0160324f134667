package host_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

func TestMaskJSON(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":"x 123456 y","123456":true}`:     `{"a":"x [secret pin] y","[secret pin]":true}`,
		`[123456,-123456.5e1,0.0123456,12345]`: `["[secret pin]","-[secret pin].5e1","0.0[secret pin]",12345]`,
		`"\u0031\u00323456\n\"<&>"`:            `"[secret pin]\n\"<&>"`,
		`"MTIzNDU2"`:                           `"[secret pin]"`,
		`[true,false,null,{},[],""]`:           `[true,false,null,{},[],""]`,
		`["\ud800","\ud800 123456"]`:           `["\ud800","� [secret pin]"]`,
	} {
		require.Equal(t, want, string(host.MaskJSON([]byte(data), "pin", "123456")))
	}
	clean := []byte(`{"a":"\n"}`)
	require.Same(t, &clean[0], &host.MaskJSON(clean, "pin", "123456")[0], "no copy")
}

// FuzzMaskJSON: a masked value is JSON, and no text of it has the secret.
func FuzzMaskJSON(f *testing.F) {
	f.Add([]byte(`{"a":["\u0031\u00323456",123456,{"123456":1e5}]}`), "123456")
	f.Add([]byte(`"\\\"quoted\\\""`), `"quoted"`)
	f.Add([]byte(`"a\\u0031"`), `a\u0031`)
	f.Add([]byte(`"a\\u00a\\u003131"`), `a\u0031`)
	f.Fuzz(func(t *testing.T, data []byte, value string) {
		if !json.Valid(data) || len(value) < 6 || strings.Contains("[secret pin]", value) {
			return
		}
		masked := host.MaskJSON(data, "pin", value)
		require.True(t, json.Valid(masked), "%s", masked)

		d := json.NewDecoder(bytes.NewReader(masked))
		d.UseNumber()
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			if text, ok := token.(string); ok {
				for part := range strings.SplitSeq(text, "[secret pin]") { // what a mark is between does not join
					require.NotContains(t, part, value)
				}
			}
		}
	})
}
