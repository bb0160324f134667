package host

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/egress"
)

// screenCost is what looking for secrets costs more than copying.
const screenCost = 2 * bytesPerUnit

// screen keeps secrets out of what a call writes: those that its requests have used, or
// those of calls that it makes or that wait for it. Package egress masks them in responses
// already; this is for a plugin that has learned one in another way. What people and
// agents read is masked, and what would be kept or passed on is refused, because data
// must not change on its way. A call without such secrets pays nothing.
//
// A plugin can still hide a value that it knows: split, reversed or encrypted.
type screen struct {
	call     *call
	recalled bool      // it knows the secrets of all rules of the plugin
	warned   bool      // the operator's log has a request that was refused
	held     [2][]byte // the end of each live output, which may be the beginning of a secret
}

// masker returns the masker of the call's secrets, nil without secrets.
func (s *screen) masker() *egress.Masker {
	shared := s.call.inner.first().traffic.Load()
	if shared == nil || shared.Masker().Empty() {
		return nil
	}
	return shared.Masker()
}

// charge charges for looking through what the guest writes.
func (s *screen) charge(n int) {
	if s.masker() != nil {
		s.call.meter.charge(screenCost * n)
	}
}

// text masks a text.
func (s *screen) text(text string) string {
	if m := s.masker(); m != nil {
		return m.String(text)
	}
	return text
}

// bytes masks a text, and does not change it in place.
func (s *screen) bytes(text []byte) []byte {
	if m := s.masker(); m != nil {
		return m.Bytes(text)
	}
	return text
}

// live masks live output. It holds back what may be the beginning of a secret.
func (s *screen) live(stream abi.Stream, p []byte) []byte {
	m := s.masker()
	if m == nil {
		return p
	}

	held := &s.held[0]
	if stream == abi.StreamStderr {
		held = &s.held[1]
	}
	text := append(*held, p...)
	masked, n := m.Stream(text)
	*held = bytes.Clone(text[len(text)-n:])
	return masked
}

// flush passes on the live output that was held back. Its error is a panic of who gets it.
func (s *screen) flush() (err error) {
	defer func() {
		if stop, ok := recover().(*instance.Stop); ok {
			err = stop
		}
	}()

	for i, stream := range []abi.Stream{abi.StreamOutput, abi.StreamStderr} {
		if held := s.held[i]; len(held) > 0 {
			s.held[i] = nil
			s.call.show(stream, s.bytes(held))
		}
	}
	return nil
}

// value masks the strings of a JSON value. A number that has a secret becomes a string.
func (s *screen) value(data json.RawMessage) json.RawMessage {
	m := s.masker()
	if m == nil {
		return data
	}
	return eachText(data, m.In(string(data)) == "", m.String)
}

// block masks a content block. Its error says that the secret is where no other text may
// stand.
func (s *screen) block(b *abi.Block) error {
	m := s.masker()
	if m == nil {
		return nil
	}

	b.Text, b.Name = m.String(b.Text), m.String(b.Name)
	for _, field := range []struct{ name, text string }{{"data", string(b.Data)}, {"uri", b.URI}, {"mimeType", b.MIMEType}} {
		if name := m.Within(field.text); name != "" {
			return fmt.Errorf("invalid content block: its %s contains the secret %q", field.name, name)
		}
	}
	return nil
}

// connection masks what a plugin says of a connection. An address with a secret goes.
func (s *screen) connection(c *abi.Connection) {
	m := s.masker()
	if m == nil {
		return
	}
	c.Provider, c.Subject = m.String(c.Provider), m.String(c.Subject)
	if m.Within(c.SetupURL) != "" {
		c.SetupURL = ""
	}
}

// recalling are the operations that return what an earlier call has kept.
var recalling = map[string]bool{"checkpoint.load": true, "kv.get": true, "session.get": true}

// refuse refuses the request of an operation that has a secret, or returns 0. What a
// report says is masked instead.
func (s *screen) refuse(op string, request []byte) int32 {
	if recalling[op] {
		s.recall()
	}
	m := s.masker()
	if m == nil || op == "report" {
		return 0
	}

	name := m.Within(string(request))
	if name == "" {
		eachText(request, true, func(text string) string {
			name = cmp.Or(name, m.Within(text))
			return text
		})
	}
	if name == "" {
		return 0
	}

	if c := s.call; !s.warned {
		s.warned = true
		c.host.log.Warn("a plugin put a secret into a request of its own, which was refused", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "operation", op, "secret", name)
		if c.Leak != nil {
			c.Leak(op, name)
		}
	}
	return s.call.refuse(abi.CallInvalid, "invalid", fmt.Sprintf("the request contains the secret %q, which must not be kept or passed on: the host puts it into http requests by itself", name))
}

// recall learns the secrets of all rules of the plugin, once: an earlier call may have
// used them, and what it has kept may have one that was not found. A secret that cannot
// be read now is left out.
func (s *screen) recall() {
	c := s.call
	if s.recalled || c.Secrets == nil {
		return
	}
	s.recalled = true

	for _, rule := range c.Policy.HTTP {
		if rule.Secret == "" {
			continue
		}
		c.guest.Idle()
		secret, err := c.Secrets.Secret(&c.ctx, rule.Secret)
		c.guest.Compute()
		if err == nil {
			c.inner.first().shared().Masker().AddSecret(rule.Secret, secret)
		}
	}
	c.meter.check()
}

// eachText replaces the texts of a JSON value: its strings, keys included, as they are
// after decoding, and its numbers; or only strings with escapes. It returns data if none
// changes.
func eachText(data []byte, escaped bool, replace func(string) string) []byte {
	var out []byte
	done := 0 // bytes of data that are in out
	for at := 0; at < len(data); {
		end := endOfText(data, at)
		if text := data[at:end]; len(text) > 0 && (!escaped || bytes.IndexByte(text, '\\') >= 0) {
			decoded := decodeText(text)
			if replaced := replace(decoded); replaced != decoded {
				out = append(append(out, data[done:at]...), plainJSON(replaced)...)
				done = end
			}
		}
		at = max(end, at+1)
	}

	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

// endOfText returns the end of the string or the number that begins at a place of a JSON
// value, which is the beginning where neither does.
func endOfText(data []byte, at int) (end int) {
	end = at
	if data[at] != '"' {
		for end < len(data) && strings.IndexByte("+-.0123456789eE", data[end]) >= 0 {
			end++
		}
		return end
	}

	for end++; end < len(data) && data[end] != '"'; end++ {
		if data[end] == '\\' {
			end++
		}
	}
	return min(end+1, len(data))
}

// decodeText decodes a string of JSON, or a number.
func decodeText(text []byte) (decoded string) {
	if json.Unmarshal(text, &decoded) != nil {
		return string(text)
	}
	return decoded
}
