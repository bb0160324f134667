package wasmbin

// NewCustom makes a custom section that comes last in its module.
func NewCustom(name string, data []byte) Custom {
	return Custom{Name: name, Data: data, after: secData}
}

// Subsections of the name section, see the appendix of the specification.
const (
	nameModule = 0
	nameFuncs  = 1
)

// funcName is the name of a function.
type funcName struct {
	index uint32
	name  string
}

func (c *codec) funcName(f *funcName) {
	c.u32(&f.index, "index")
	c.name(&f.name, "name")
}

// readNames returns the names of a module and of its functions. It is false if the
// content of the name section cannot be read.
func readNames(data []byte) (module string, funcs []funcName, ok bool) {
	c := codec{in: cursor{b: data}}
	for c.in.left() > 0 {
		id := c.in.byte("subsection")

		c.sized("subsection", func() {
			switch id {
			case nameModule:
				c.name(&module, "module name")
			case nameFuncs:
				list(&c, &funcs, 2, "names", c.funcName)
			default:
				c.in.pos = len(c.in.b)
			}
		})
	}
	return module, funcs, c.in.err == nil
}

// MoveFuncNames returns the content of a name section with every function at its new index.
// Names of anything but the module and its functions are left out. The second result is false
// if the content cannot be read.
func MoveFuncNames(data []byte, index func(uint32) uint32) ([]byte, bool) {
	module, funcs, ok := readNames(data)
	for i := range funcs {
		funcs[i].index = index(funcs[i].index)
	}

	c := writer(nil)
	if module != "" {
		c.section(nameModule, func() { c.name(&module, "") })
	}
	c.section(nameFuncs, func() { entries(c, &funcs, 2, c.funcName) })
	return c.out, ok && len(c.out) > 0
}
