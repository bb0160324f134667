package wasmbin

import (
	"bytes"
	"fmt"
)

// componentHeader is the preamble of a component: version 13 of layer 1.
const componentHeader = "\x00asm\x0d\x00\x01\x00"

// IsComponent reports whether a binary begins like a component.
func IsComponent(wasm []byte) bool { return bytes.HasPrefix(wasm, []byte(componentHeader)) }

// Component lists the imports and exports of a component, and counts its own core
// modules.
type Component struct {
	Imports []ComponentName `json:"imports"`
	Exports []ComponentName `json:"exports"`
	Modules int             `json:"core_modules"`
}

// ComponentName is an import or an export of a component.
type ComponentName struct {
	Name string `json:"name"` // such as wasi:cli/environment@0.2.0
	Kind string `json:"kind"` // core module, func, value, type, component or instance
}

// The sections of a component that are read.
const (
	secComponentModule = 1
	secComponentImport = 10
	secComponentExport = 11
	secComponentLast   = 12 // values
)

// componentSorts are the sorts of what a component imports and exports.
var componentSorts = []string{"core", "func", "value", "type", "component", "instance"}

// ParseComponent decodes the imports and exports of a component. Its errors are those of
// [Parse].
func ParseComponent(wasm []byte) (*Component, error) {
	if !IsComponent(wasm) {
		return nil, &Error{Err: ErrMalformed, Detail: "not a component"}
	}

	found := &Component{}
	c := cursor{b: wasm, pos: len(componentHeader)}
	for c.err == nil && c.left() > 0 {
		c.section = "component"
		at := c.pos
		id := c.byte("section id")
		body := c.bytes(c.count(1, "section size"), "section")
		if c.err == nil && id > secComponentLast {
			c.malformed(at, "unknown section id %d", id)
		}

		in := cursor{b: body, base: c.pos - len(body)}
		switch id {
		case secComponentModule:
			found.Modules++
		case secComponentImport:
			in.section = "import"
			in.componentEntries(&found.Imports, (*cursor).componentImport)
		case secComponentExport:
			in.section = "export"
			in.componentEntries(&found.Exports, (*cursor).componentExport)
		}
		if c.err == nil {
			c.err = in.err
		}
	}

	if err := c.result(); err != nil {
		return nil, err
	}
	return found, nil
}

// componentEntries reads the entries of a section.
func (c *cursor) componentEntries(list *[]ComponentName, entry func(*cursor) ComponentName) {
	for n := c.entries(4, "number of entries"); n > 0 && c.err == nil; n-- {
		*list = append(*list, entry(c))
	}
	c.complete()
}

// componentImport reads an import: its name, and what it has to be.
func (c *cursor) componentImport() ComponentName {
	name := c.componentName()
	return ComponentName{Name: name, Kind: c.externDesc()}
}

// componentExport reads an export: its name, what it is, and what it is shown as, if that
// is said.
func (c *cursor) componentExport() ComponentName {
	name := c.componentName()
	kind := c.sort()
	c.u32("index")
	switch at := c.pos; c.byte("whether a type follows") {
	case 0:
	case 1:
		c.externDesc()
	default:
		c.malformed(at, "expected 0 or 1 before a type")
	}
	return ComponentName{Name: name, Kind: kind}
}

// componentName reads a name after the byte that says of which form it is.
func (c *cursor) componentName() string {
	at := c.pos
	form := c.byte("form of a name")
	name := c.name("name")
	switch form {
	case 0, 1:
	case 2: // with the rest of its version
		name += c.name("version suffix")
	default:
		c.malformed(at, "unknown form %d of a name", form)
	}
	return name
}

// sort reads what kind of thing an index is of.
func (c *cursor) sort() string {
	at := c.pos
	s := c.byte("sort")
	if int(s) >= len(componentSorts) {
		c.malformed(at, "unknown sort %d", s)
		return ""
	}
	if s == 0 {
		return coreSort(c.byte("core sort"))
	}
	return componentSorts[s]
}

// coreModule is the sort of a core module.
const coreModule = 0x11

func coreSort(b byte) string {
	if b == coreModule {
		return "core module"
	}
	return fmt.Sprintf("core %v", Kind(b))
}

// externDesc reads the type of an import or an export, and returns its kind.
func (c *cursor) externDesc() string {
	at := c.pos
	kind := c.sort()
	switch kind {
	case "value", "type": // bounds: equal to one, or for a type any resource
		if bound := c.byte("bound"); bound == 1 && kind == "type" {
			return kind
		} else if bound > 1 {
			c.malformed(at, "unknown bound %d", bound)
		} else if bound == 1 { // of a value: its type
			c.signed(33, "type")
			return kind
		}
	}
	c.u32("index")
	return kind
}
