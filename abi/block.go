package abi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Block is one piece of content. Type says which fields are set.
type Block struct {
	Type     string `json:"type"`               // text, image, audio, resource or resource_link
	Text     string `json:"text,omitempty"`     // text of a text block or a resource
	Data     []byte `json:"data,omitempty"`     // bytes of an image or a sound; base64 in JSON
	MIMEType string `json:"mimeType,omitempty"` // media type of an image, a sound, a resource or a resource_link
	URI      string `json:"uri,omitempty"`      // address of a resource or a resource_link
	Name     string `json:"name,omitempty"`     // name of a resource_link
}

// blockFields lists the fields of each type of content block, and says whether they
// are required.
var blockFields = map[string]map[string]bool{
	"text":          {"text": false},
	"image":         {"data": true, "mimeType": true},
	"audio":         {"data": true, "mimeType": true},
	"resource":      {"text": false, "uri": true, "mimeType": false},
	"resource_link": {"uri": true, "name": true, "mimeType": false},
}

// DecodeBlock reads a content block strictly. Media types follow RFC 6838 and URIs RFC 3986.
// The scheme of a link must be safe to open, the media type of an image or a sound must begin
// with image/ or audio/, and names must not contain control characters.
func DecodeBlock(data []byte) (Block, error) {
	var b Block
	if ps := decodeStrict(data, &b); len(ps) > 0 {
		return Block{}, fmt.Errorf("invalid content block: %s", ps[0])
	}
	fields, known := blockFields[b.Type]
	if !known {
		return Block{}, fmt.Errorf("invalid content block: unknown type %q, expected text, image, audio, resource or resource_link", b.Type)
	}

	for _, f := range []struct {
		name string
		set  bool
	}{{"text", b.Text != ""}, {"data", len(b.Data) > 0}, {"mimeType", b.MIMEType != ""}, {"uri", b.URI != ""}, {"name", b.Name != ""}} {
		switch required, allowed := fields[f.name]; {
		case required && !f.set:
			return Block{}, fmt.Errorf("invalid content block: a block of type %s needs %s", b.Type, f.name)
		case f.set && !allowed:
			return Block{}, fmt.Errorf("invalid content block: a block of type %s has no %s", b.Type, f.name)
		}
	}

	if err := b.check(); err != nil {
		return Block{}, fmt.Errorf("invalid content block: %w", err)
	}
	return b, nil
}

// Limits of the texts of a block, in bytes.
const (
	maxMediaType = 255
	maxURI       = 8 << 10
	maxName      = 1 << 10
)

// linkSchemes lists the schemes that a link may have: those of web pages, of the host's
// resources, and of names that nothing opens. A client may open a link directly, so
// file:, data: and javascript: are excluded.
var linkSchemes = []string{"https", "http", "toolhost", "urn"}

// openedSchemes lists the schemes that are refused even for an embedded resource,
// whose URI may have any other scheme.
var openedSchemes = []string{"javascript", "vbscript", "data", "blob", "file", "filesystem", "view-source", "about"}

// scriptImage is a media type that may contain scripts, and is a document rather than an image.
const scriptImage = "image/svg+xml"

func (b *Block) check() error {
	if b.MIMEType != "" {
		media, ok := mediaType(b.MIMEType)
		switch {
		case !ok:
			return fmt.Errorf("mimeType: expected a media type such as text/plain, found %.80q", b.MIMEType)
		case b.Type == "image" && media == scriptImage:
			return fmt.Errorf("mimeType: an SVG may contain scripts: send it as the text of a block of type resource")
		case (b.Type == "image" || b.Type == "audio") && !strings.HasPrefix(media, b.Type+"/"):
			return fmt.Errorf("mimeType: a block of type %s needs a media type %s/…, found %.80q", b.Type, b.Type, media)
		}
	}

	if b.URI != "" {
		scheme, ok := uriScheme(b.URI)
		switch {
		case !ok && hasUser(b.URI):
			return errors.New("uri: a web address may not have a user or password: remove what is before the @") // but no secret
		case !ok:
			return fmt.Errorf("uri: expected a URI such as https://example.com/a%%20b, found %.80q", b.URI)
		case b.Type == "resource_link" && !slices.Contains(linkSchemes, scheme):
			return fmt.Errorf("uri: a link may have the scheme %s, found %q", strings.Join(linkSchemes, ", "), scheme)
		case slices.Contains(openedSchemes, scheme):
			return fmt.Errorf("uri: the scheme %q is not allowed", scheme)
		}
	}

	if len(b.Name) > maxName || strings.ContainsFunc(b.Name, isControl) {
		return fmt.Errorf("name: expected at most %d bytes without control characters, found %.80q", maxName, b.Name)
	}
	return nil
}

// isControl reports whether a character controls a terminal, a line or the direction
// of writing.
func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// The characters of RFC 6838's restricted names and of RFC 9110's tokens.
const (
	nameChars  = letters + digits + "!#$&-^_.+"
	tokenChars = letters + digits + "!#$%&'*+-.^_`|~"
)

// mediaType returns a type and subtype in lower case, without the parameters. ok is
// false if the text is not a media type of RFC 6838 with parameters as in RFC 9110.
func mediaType(text string) (media string, ok bool) {
	media, parameters, more := strings.Cut(text, ";")
	media = strings.TrimRight(media, " \t")
	kind, sub, _ := strings.Cut(media, "/")
	if len(text) > maxMediaType || !isRestricted(kind) || !isRestricted(sub) {
		return "", false
	}

	for more {
		if parameters, more, ok = cutParameter(strings.TrimLeft(parameters, " \t")); !ok {
			return "", false
		}
	}
	return strings.ToLower(media), true
}

// cutParameter cuts off name=value and the following semicolon. more reports that
// there was one.
func cutParameter(text string) (rest string, more, ok bool) {
	name, value, _ := strings.Cut(text, "=")
	if name == "" || !consists(name, tokenChars) {
		return "", false, false
	}

	quoted := strings.HasPrefix(value, `"`)
	end := len(value) - len(strings.TrimLeft(value, tokenChars))
	if quoted {
		end = quotedEnd(value)
	}
	if end <= 0 {
		return "", false, false
	}

	rest = strings.TrimLeft(value[end:], " \t")
	if rest == "" {
		return "", false, true
	}
	rest, more = strings.CutPrefix(rest, ";")
	return rest, more, more
}

// quotedEnd returns where a quoted text ends, or 0.
func quotedEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
		case c < ' ' && c != '\t' || c >= 0x7f:
			return 0
		}
	}
	return 0
}

// isRestricted reports whether s is a restricted-name of RFC 6838.
func isRestricted(s string) bool {
	return s != "" && len(s) <= 127 && consists(s[:1], letters+digits) && consists(s, nameChars)
}

// uriScheme returns the scheme of a URI in lower case. ok is false if the text is not
// an absolute URI of RFC 3986, or is a web address without a host or with a user.
func uriScheme(uri string) (scheme string, ok bool) {
	scheme, rest, found := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	if !found || scheme == "" || rest == "" || len(uri) > maxURI || !consists(scheme[:1], lower) || !consists(scheme, lower+digits+"+-.") {
		return "", false
	}

	const hex = digits + "abcdefABCDEF"
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '%':
			if i+2 >= len(rest) || !consists(rest[i+1:i+3], hex) {
				return "", false
			}
		case c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0:
			return "", false
		}
	}

	if scheme == "http" || scheme == "https" {
		authority := authorityOf(rest)
		return scheme, authority != "" && authority[0] != ':' && !strings.Contains(authority, "@")
	}
	return scheme, true
}

// hasUser reports whether a web address names a user, perhaps with a password.
func hasUser(uri string) bool {
	_, rest, _ := strings.Cut(uri, ":")
	return strings.Contains(authorityOf(rest), "@")
}

// authorityOf returns the user, host and port of a web address whose scheme is cut
// off, or "".
func authorityOf(rest string) string {
	authority, web := strings.CutPrefix(rest, "//")
	if !web {
		return ""
	}
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	return authority
}
