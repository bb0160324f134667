package wasmbin

import "unicode/utf8"

// NewCustom makes a custom section that comes last in its module.
func NewCustom(name string, data []byte) Custom {
	return Custom{Name: name, Data: data, after: secData}
}

// Subsections of the name section, see the appendix of the specification.
const (
	nameModule = 0
	nameFuncs  = 1
)

// MoveFuncNames returns the content of a name section with every function at its
// new index. Names of anything but the module and its functions are left out. It
// is false if the content cannot be read.
func MoveFuncNames(data []byte, index func(uint32) uint32) ([]byte, bool) {
	c := &cursor{b: data}
	var out []byte
	for c.left() > 0 {
		id := c.byte("subsection")
		sub := &cursor{b: c.bytes(c.count(1, "subsection"), "subsection")}
		switch id {
		case nameModule:
			name := sub.name("module name")
			out = appendSection(out, nameModule, appendName(nil, name))
		case nameFuncs:
			out = appendSection(out, nameFuncs, moveNames(sub, index))
		default:
			continue
		}

		if sub.err != nil || sub.left() > 0 {
			return nil, false
		}
	}

	return out, c.err == nil && len(out) > 0
}

func moveNames(c *cursor, index func(uint32) uint32) []byte {
	n := c.count(2, "names")
	b := AppendU32(nil, uint32(n))
	for ; n > 0 && c.err == nil; n-- {
		b = AppendU32(b, index(c.u32("index")))
		b = appendName(b, c.name("name"))
	}
	return b
}

// FuncName returns the name that the content of a name section has for a
// function. It is empty if there is none, or the content cannot be read.
func FuncName(data []byte, index uint32) string {
	c := &cursor{b: data}
	for c.left() > 0 {
		id := c.byte("subsection")
		sub := &cursor{b: c.bytes(c.count(1, "subsection"), "subsection")}
		if id != nameFuncs {
			continue
		}
		for n := sub.count(2, "names"); n > 0 && sub.err == nil; n-- {
			found := sub.u32("index")
			name := sub.bytes(sub.count(1, "name"), "name")
			if found == index && sub.err == nil && utf8.Valid(name) {
				return string(name)
			}
		}
	}

	return ""
}
