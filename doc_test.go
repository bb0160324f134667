package toolhost_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/host"
)

// TestDocumentedFields: go doc shows the fields of types that are only aliases in a package.
func TestDocumentedFields(t *testing.T) {
	names := strings.NewReplacer("guest.", "", "grant.", "", "abi.", "", "egress.Rule", "HTTPRule")
	for name, types := range map[string][]any{
		"guest/plugin.go": {guest.Hints{}, guest.Limits{}, guest.Needs{}, guest.FileNeed{}, guest.HTTPNeed{}, guest.Narration{}, guest.Text{}},
		"host/grants.go":  {host.Grant{}, host.Mount{}, host.HTTPRule{}, host.KV{}},
	} {
		docs := typeDocs(t, name)
		for _, v := range types {
			of := reflect.TypeOf(v)
			for f := range of.Fields() {
				kind := names.Replace(f.Type.String())
				line := regexp.MustCompile(`(?m)^\t` + f.Name + ` +` + regexp.QuoteMeta(kind) + `( |$)`)
				require.Regexp(t, line, docs[names.Replace(of.String())], name)
			}
		}
	}
}

// typeDocs returns the doc comments of the types that a file declares.
func typeDocs(t *testing.T, name string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	require.NoError(t, err)
	docs := map[string]string{}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			docs[d.Specs[0].(*ast.TypeSpec).Name.Name] = d.Doc.Text()
		}
	}
	return docs
}
