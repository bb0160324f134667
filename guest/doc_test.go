package guest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest"
)

// TestDocumentedFields: go doc shows the fields of the types that are only aliases here.
func TestDocumentedFields(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "plugin.go", nil, parser.ParseComments)
	require.NoError(t, err)
	docs := map[string]string{}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			docs[d.Specs[0].(*ast.TypeSpec).Name.Name] = d.Doc.Text()
		}
	}

	for _, v := range []any{guest.Hints{}, guest.Limits{}, guest.Needs{}, guest.FileNeed{}, guest.Narration{}, guest.Text{}} {
		of := reflect.TypeOf(v)
		for i := range of.NumField() {
			f := of.Field(i)
			kind := strings.ReplaceAll(f.Type.String(), "abi.", "")
			require.Regexp(t, `(?m)^\t`+f.Name+` +`+strings.NewReplacer("*", `\*`, "[", `\[`, "]", `\]`).Replace(kind)+`( |$)`, docs[of.Name()])
		}
	}
}
