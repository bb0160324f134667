package webui

import (
	"cmp"
	"encoding/base64"
	"html/template"
	"slices"

	"github.com/toolhost/toolhost/abi"
)

const (
	maxBlocks = 20      // blocks of content shown
	maxInline = 1 << 20 // bytes of all pictures and files embedded in the page
)

// pictures lists the media types of pictures that a page shows. Browsers decode them
// without running anything.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// A block is one piece of the content of a result.
type block struct {
	Type, Media string
	Name, URI   string
	Text        string
	Size        int64
	Picture     template.URL // image to show
	File        template.URL // other data to save
}

// newBlocks returns the blocks that a page shows. Beyond the limits, it only names them.
func newBlocks(content []abi.Block) (all []block) {
	left := maxInline
	for _, c := range content[:min(len(content), maxBlocks)] {
		b := block{Type: c.Type, Media: cut(c.MIMEType, 100), Name: cut(c.Name, 200), URI: cut(c.URI, 500), Text: cut(c.Text, maxShown), Size: int64(cmp.Or(len(c.Data), len(c.Text)))}
		if len(c.Data) > 0 && len(c.Data) <= left {
			left -= len(c.Data)
			data := base64.StdEncoding.EncodeToString(c.Data)
			if c.Type == "image" && slices.Contains(pictures, c.MIMEType) {
				b.Picture = template.URL("data:" + c.MIMEType + ";base64," + data)
			} else {
				b.File = template.URL("data:application/octet-stream;base64," + data)
			}
		}
		all = append(all, b)
	}
	return all
}
