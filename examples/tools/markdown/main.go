// Plugin markdown converts Markdown to HTML, and HTML to Markdown.
package main

import (
	"fmt"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"

	"github.com/toolhost/toolhost/guest"
)

type toHTMLArgs struct {
	Markdown string `json:"markdown" desc:"CommonMark with tables, task lists, strikethrough, footnotes and bare links of GitHub" max:"1000000"`
	RawHTML  bool   `json:"raw_html,omitempty" desc:"Keep HTML in the text, and links with schemes such as javascript: only for texts that you trust"`
	IDs      bool   `json:"heading_ids,omitempty" desc:"Give headings ids to link to"`
}

func toHTML(_ *guest.Call, in toHTMLArgs) (string, error) {
	options := []goldmark.Option{goldmark.WithExtensions(extension.GFM, extension.Footnote)}
	if in.RawHTML {
		options = append(options, goldmark.WithRendererOptions(html.WithUnsafe()))
	}
	if in.IDs {
		options = append(options, goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	}

	var out strings.Builder
	if err := goldmark.New(options...).Convert([]byte(in.Markdown), &out); err != nil {
		return "", err
	}
	return out.String(), nil
}

type fromHTMLArgs struct {
	HTML     string `json:"html" desc:"A page, or a part of one" max:"4000000"`
	URL      string `json:"url,omitempty" desc:"Where the page is from, such as https://example.com: makes its links absolute"`
	Selector string `json:"only,omitempty" desc:"Name of an element, such as main or article: convert only what is in elements of that name" pattern:"^[a-zA-Z][a-zA-Z0-9-]*$"`
}

func fromHTML(_ *guest.Call, in fromHTMLArgs) (string, error) {
	if in.Selector != "" {
		parts, err := elements(in.HTML, strings.ToLower(in.Selector))
		if err != nil {
			return "", err
		}
		if in.HTML = strings.Join(parts, "\n"); len(parts) == 0 {
			return "", fmt.Errorf("the page has no element %q", in.Selector)
		}
	}
	c := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin(), strikethrough.NewStrikethroughPlugin(),
	))
	var options []converter.ConvertOptionFunc
	if in.URL != "" {
		options = append(options, converter.WithDomain(in.URL))
	}
	return c.ConvertString(in.HTML, options...)
}

var closed = false

var plugin = guest.Plugin{
	Name: "markdown", Version: "1.0.0", Description: "Converts between Markdown and HTML.", License: "Apache-2.0",
	Tools: []guest.Tool{
		{
			Name: "to_html", Description: "Converts Markdown to HTML. HTML in the text and dangerous links are left out.",
			Handler: guest.Handle(toHTML), Hints: guest.Hints{Readonly: true, Idempotent: true, OpenWorld: &closed},
			Examples: []guest.Example{
				{Name: "a table", Args: toHTMLArgs{Markdown: "|a|\n|-|\n|**1**|\n"}, Result: "<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td><strong>1</strong></td>\n</tr>\n</tbody>\n</table>\n"},
				{Name: "hostile", Args: toHTMLArgs{Markdown: "<script>x</script>[a](javascript:x)"}, Result: "<!-- raw HTML omitted -->\n"},
			},
		},
		{
			Name: "from_html", Description: "Converts HTML to Markdown, which is shorter and easier to read. Scripts and styles are left out.",
			Handler: guest.Handle(fromHTML), Hints: guest.Hints{Readonly: true, Idempotent: true, OpenWorld: &closed},
			Examples: []guest.Example{
				{
					Name: "a page", Args: fromHTMLArgs{HTML: "<style>b{}</style><h1>Tea</h1><p>From <a href='/cn'>China</a>.<ul><li>green<li><b>black</b></ul>", URL: "https://example.com"},
					Result: "# Tea\n\nFrom [China](https://example.com/cn).\n\n- green\n- **black**",
				},
				{Name: "a part", Args: fromHTMLArgs{HTML: "<nav>Menu</nav><main>Text</main>", Selector: "main"}, Result: "Text"},
				{Name: "no such part", Args: fromHTMLArgs{HTML: "<p>a</p>", Selector: "main"}, Error: "no element"},
			},
		},
	},
}

func init() { guest.Serve(&plugin) }

func main() {}
