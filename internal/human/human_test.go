package human_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/human"
)

func TestBytes(t *testing.T) {
	for n, text := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 64 << 20: "64.0 MiB", 3 << 30: "3.0 GiB"} {
		require.Equal(t, text, human.Bytes(n))
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext":          "plain\n\ttext",
		"\x1b[31m\r\x00\x7f":     "␛[31m␍␀␡",
		"a\u202eb\u2066c\u200fd": "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200F⟩d",
		"\u0085\u2028\ufeff":     "⟨U+0085⟩⟨U+2028⟩⟨U+FEFF⟩",
		"\U000e0041":             "⟨U+E0041⟩",
		"\xff\xc3":               "\ufffd\ufffd",
		"Zürich, 東京, שלום":       "Zürich, 東京, שלום",
		"👩\u200d🔬 \u200d":        "👩\u200d🔬 ⟨U+200D⟩",
		"e\u0301" + strings.Repeat("\u0301", 9) + "!": "e\u0301\u0301\u0301\u0301⟨more marks⟩!",
	} {
		require.Equal(t, want, string(human.Visible([]byte(in))), "%q", in)
		require.Equal(t, want, string(human.Visible([]byte(want))), "again")
	}
}
