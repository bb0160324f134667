package main

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// module is the path of the module whose types the document has.
const module = "github.com/toolhost/toolhost/"

// source is the Go source of the module: what reflection does not know.
type source struct {
	root     string
	packages map[string]*pkg // by import path
}

// pkg is what the source of a package says of its types.
type pkg struct {
	types  map[string]*typeDoc
	values map[string][]value // the constants of a type of strings, in their order
}

type typeDoc struct {
	doc    string
	fields map[string]string // what is said of a field, by its Go name
}

// value is a constant of a type of strings.
type value struct{ name, text, doc string }

// of returns what the source says of the package of a type, nil for one that is
// not of the module.
func (s *source) of(t reflect.Type) (*pkg, error) {
	path := t.PkgPath()
	dir, ok := strings.CutPrefix(path, module)
	if !ok {
		return nil, nil
	}
	if p := s.packages[path]; p != nil {
		return p, nil
	}
	p, err := readPackage(filepath.Join(s.root, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	if s.packages == nil {
		s.packages = map[string]*pkg{}
	}
	s.packages[path] = p
	return p, nil
}

func readPackage(dir string) (*pkg, error) {
	p := &pkg{types: map[string]*typeDoc{}, values: map[string][]value{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".go" || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				p.read(gen)
			}
		}
	}
	return p, nil
}

func (p *pkg) read(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc
			if doc == nil {
				doc = decl.Doc
			}
			p.types[spec.Name.Name] = &typeDoc{doc: said(doc), fields: fieldDocs(spec.Type)}
		case *ast.ValueSpec:
			typ, ok := spec.Type.(*ast.Ident)
			if decl.Tok != token.CONST || !ok || len(spec.Values) != 1 {
				continue
			}
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				continue
			}
			text, _ := strconv.Unquote(lit.Value) // the parser has read it
			p.values[typ.Name] = append(p.values[typ.Name], value{spec.Names[0].Name, text, said(spec.Doc, spec.Comment)})
		}
	}
}

func fieldDocs(t ast.Expr) map[string]string {
	fields := map[string]string{}
	if t, ok := t.(*ast.StructType); ok {
		for _, f := range t.Fields.List {
			for _, name := range f.Names {
				fields[name.Name] = said(f.Doc, f.Comment)
			}
		}
	}
	return fields
}

// said is the text of the first of the comments there is, its paragraphs in a
// line each.
func said(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if g == nil {
			continue
		}
		p := comment.Parser{ // it takes what is in brackets for names of Go, which stand alone in the text
			LookupPackage: func(name string) (string, bool) { return name, true },
			LookupSym:     func(string, string) bool { return true },
		}
		printer := comment.Printer{TextWidth: -1}
		return strings.TrimSpace(string(printer.Text(p.Parse(g.Text()))))
	}
	return ""
}

// word is a name in a comment.
var word = regexp.MustCompile(`\b[A-Z]\w+\b`)

// inJSON has a comment name things as JSON does: fields of the type t, and
// values of enumerations, which are known by their Go name in a comment.
func inJSON(text string, t reflect.Type, names map[string]string) string {
	return word.ReplaceAllStringFunc(text, func(name string) string {
		if t.Kind() == reflect.Struct && name != t.Name() {
			if f, ok := t.FieldByName(name); ok {
				if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
					return "`" + tag + "`"
				}
			}
		}
		if json, ok := names[name]; ok {
			return "`" + json + "`"
		}
		return name
	})
}

// describeValues lists the values of an enumeration that something is said of.
func describeValues(values []value) string {
	var b strings.Builder
	for _, v := range values {
		if v.doc != "" && v.text != "" {
			fmt.Fprintf(&b, "\n- `%s`: %s", v.text, v.doc)
		}
	}
	return b.String()
}
