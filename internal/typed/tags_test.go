package typed

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTagsOfFields has what the compiler's vet would not let a test's types have.
func TestTagsOfFields(t *testing.T) {
	for _, c := range []struct {
		field reflect.StructField
		want  string
	}{
		{reflect.StructField{Name: "name", PkgPath: "main", Tag: `json:"name"`}, "it has the tag json and is not exported, so JSON leaves it out: begin its name with a capital letter, or remove the tag"},
		{reflect.StructField{Name: "name", PkgPath: "main", Tag: `desc:"x"`}, "it has the tag desc and is not exported"},
		{reflect.StructField{Name: "name", PkgPath: "main", Tag: `json:"-"`}, ""},
		{reflect.StructField{Name: "name", PkgPath: "main"}, ""},
		{reflect.StructField{Name: "base", PkgPath: "main", Anonymous: true, Type: reflect.TypeFor[struct{}](), Tag: `json:"base"`}, "it has the tag json and is not exported"},
		{reflect.StructField{Name: "N", Tag: `json:n`}, `bad struct tag "json:n": expected key:"value" pairs with a space between them`},
		{reflect.StructField{Name: "N", Tag: `required`}, `bad struct tag "required"`},
		{reflect.StructField{Name: "N", Tag: `json:"n" desc:"a \"b\": c" min:"1"`}, ""},
		{reflect.StructField{Name: "N", Tag: ` yaml:"n"  json:"n" `}, ""},
	} {
		if c.field.Type == nil {
			c.field.Type = reflect.TypeFor[string]()
		}
		err := new(schemaBuilder).checkTags(c.field)
		if c.want == "" {
			require.NoError(t, err, c.field.Tag)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}
