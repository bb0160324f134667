package main

import (
	"io"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Limits on what is kept of a page, no matter what it contains.
const (
	maxLinks = 200
	maxTitle = 300     // bytes in a title
	maxToken = 1 << 20 // bytes in a tag
)

// reader converts the tokens of a page to text. It builds no tree, so deeply nested
// pages cost nothing extra.
type reader struct {
	base  *url.URL
	title string
	links []link
	out   strings.Builder

	hidden  atom.Atom // element whose content is being left out, or 0
	inTitle bool
	pre     int // number of open elements that keep their white space
	space   bool
	breaks  int // line breaks to write before the next text
	href    string
	anchor  int // offset at which the text of the current link begins, or -1
}

// skipped lists the elements whose content is not part of the page's text. In a page,
// none of them contains another one of the same kind.
var skipped = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Iframe: true,
	atom.Nav: true, atom.Select: true, atom.Textarea: true, atom.Object: true, atom.Canvas: true,
}

// breaking maps the elements that begin and end a line to the number of line breaks.
var breaking = map[atom.Atom]int{
	atom.P: 2, atom.Div: 1, atom.Section: 2, atom.Article: 2, atom.Header: 1, atom.Footer: 1, atom.Main: 1, atom.Aside: 2,
	atom.H1: 2, atom.H2: 2, atom.H3: 2, atom.H4: 2, atom.H5: 2, atom.H6: 2,
	atom.Ul: 1, atom.Ol: 1, atom.Li: 1, atom.Dl: 1, atom.Dt: 1, atom.Dd: 1, atom.Table: 2, atom.Tr: 1,
	atom.Blockquote: 2, atom.Pre: 2, atom.Br: 1, atom.Hr: 2, atom.Form: 1, atom.Figure: 1, atom.Figcaption: 1,
}

var headings = map[atom.Atom]string{atom.H1: "# ", atom.H2: "## ", atom.H3: "### ", atom.H4: "#### ", atom.H5: "##### ", atom.H6: "###### "}

// readPage reads as much of a page as it can.
func readPage(in io.Reader, base *url.URL) *reader {
	r := &reader{base: base, anchor: -1}
	z := html.NewTokenizer(in)
	z.SetMaxBuf(maxToken)
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			return r
		case html.TextToken:
			r.write(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := z.TagName()
			if tag := atom.Lookup(name); kind == html.StartTagToken || tag != atom.Svg {
				r.start(tag, z, more)
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			r.end(atom.Lookup(name))
		}
	}
}

func (r *reader) start(tag atom.Atom, z *html.Tokenizer, attributes bool) {
	if r.hidden != 0 {
		return
	}
	if skipped[tag] {
		r.hidden = tag
		return
	}

	href := ""
	for attributes {
		var key, value []byte
		key, value, attributes = z.TagAttr()
		if string(key) == "href" {
			href = string(value)
		}
	}
	r.breakLine(breaking[tag])
	switch tag {
	case atom.Title:
		r.inTitle = r.title == ""
	case atom.Base:
		if to, ok := r.resolve(href); ok {
			r.base = to
		}
	case atom.A:
		r.endLink()
		r.href, r.anchor = href, r.out.Len()
	case atom.Li:
		r.write("- ")
	case atom.Td, atom.Th:
		r.space = true
	case atom.Pre:
		r.pre++
	}
	if mark := headings[tag]; mark != "" {
		r.write(mark)
	}
}

func (r *reader) end(tag atom.Atom) {
	if r.hidden != 0 {
		if r.hidden == tag {
			r.hidden = 0
		}
		return
	}

	switch tag {
	case atom.Title:
		r.inTitle = false
	case atom.A:
		r.endLink()
	case atom.Pre:
		r.pre = max(r.pre-1, 0)
	}
	r.breakLine(breaking[tag])
}

func (r *reader) breakLine(n int) { r.breaks = max(r.breaks, n) }

// write adds text from the page. White space becomes one space, except inside pre, where
// it is kept.
func (r *reader) write(text string) {
	switch {
	case r.hidden != 0:
		return
	case r.inTitle:
		if r.title = strings.Join(strings.Fields(r.title+" "+text), " "); len(r.title) > maxTitle {
			r.title = strings.ToValidUTF8(r.title[:maxTitle], "") + "…"
		}
		return
	case r.pre > 0:
		r.flush()
		r.out.WriteString(text)
		return
	}

	for i, word := range strings.Fields(text) {
		if i > 0 || strings.TrimLeft(text, " \t\r\n\f") != text {
			r.space = true
		}
		r.flush()
		r.out.WriteString(word)
	}
	if strings.TrimRight(text, " \t\r\n\f") != text {
		r.space = true
	}
}

// flush writes the line breaks or the space that come before a word.
func (r *reader) flush() {
	switch {
	case r.out.Len() == 0:
	case r.breaks > 0:
		r.out.WriteString(strings.Repeat("\n", r.breaks))
	case r.space:
		r.out.WriteString(" ")
	}
	r.breaks, r.space = 0, false
}

// endLink keeps a link if it leads to another page.
func (r *reader) endLink() {
	if r.anchor < 0 || len(r.links) == maxLinks {
		return
	}
	text := strings.Join(strings.Fields(r.out.String()[r.anchor:]), " ")
	r.anchor = -1
	if len(text) > maxTitle {
		text = strings.ToValidUTF8(text[:maxTitle], "") + "…"
	}
	if to, ok := r.resolve(r.href); ok && text != "" && !strings.HasPrefix(r.href, "#") {
		r.links = append(r.links, link{text, to.String()})
	}
}

// resolve returns the absolute address of a link, if it leads to the web.
func (r *reader) resolve(href string) (*url.URL, bool) {
	to, err := r.base.Parse(strings.TrimSpace(href))
	if err != nil || to.Scheme != "https" && to.Scheme != "http" || to.Host == "" {
		return nil, false
	}
	to.User = nil
	return to, true
}

func (r *reader) text() string { return strings.ToValidUTF8(r.out.String(), "\uFFFD") }
