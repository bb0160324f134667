package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/abi"
)

// content says what the value of a keyword contains.
type content byte

const (
	noSchema content = iota
	oneSchema
	schemaList
	schemasByName
)

// vocabulary lists the keywords of JSON Schema 2020-12. Those in the last group are
// annotations from OpenAPI and MCP, which have no influence on which values fit a
// schema.
var vocabulary = map[string]content{
	"$schema": noSchema, "$id": noSchema, "$anchor": noSchema, "$dynamicAnchor": noSchema, "$ref": noSchema, "$dynamicRef": noSchema,
	"$vocabulary": noSchema, "$comment": noSchema, "$defs": schemasByName, "definitions": schemasByName,

	"allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList, "not": oneSchema, "if": oneSchema, "then": oneSchema, "else": oneSchema,
	"dependentSchemas": schemasByName, "prefixItems": schemaList, "items": oneSchema, "contains": oneSchema,
	"properties": schemasByName, "patternProperties": schemasByName, "additionalProperties": oneSchema, "propertyNames": oneSchema,
	"unevaluatedItems": oneSchema, "unevaluatedProperties": oneSchema,

	"type": noSchema, "enum": noSchema, "const": noSchema, "multipleOf": noSchema, "maximum": noSchema, "exclusiveMaximum": noSchema,
	"minimum": noSchema, "exclusiveMinimum": noSchema, "maxLength": noSchema, "minLength": noSchema, "pattern": noSchema,
	"maxItems": noSchema, "minItems": noSchema, "uniqueItems": noSchema, "maxContains": noSchema, "minContains": noSchema,
	"maxProperties": noSchema, "minProperties": noSchema, "required": noSchema, "dependentRequired": noSchema,

	"title": noSchema, "description": noSchema, "default": noSchema, "deprecated": noSchema, "readOnly": noSchema, "writeOnly": noSchema,
	"examples": noSchema, "format": noSchema, "contentEncoding": noSchema, "contentMediaType": noSchema, "contentSchema": oneSchema,

	"discriminator": noSchema, "xml": noSchema, "externalDocs": noSchema, "example": noSchema, "enumNames": noSchema,
}

// instead says what to write in place of keywords from other dialects, which a
// validator for 2020-12 would ignore.
var instead = map[string]string{
	"nullable": `add "null" to type`, "optional": "list the other properties in required", "id": "use $id",
	"dependencies": "use dependentRequired or dependentSchemas", "additionalItems": "use items after prefixItems",
	"$recursiveRef": "use $dynamicRef", "$recursiveAnchor": "use $dynamicAnchor", "divisibleBy": "use multipleOf",
}

var typeNames = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// checkKeywords returns the problems that a validator would ignore or report badly:
// unknown keywords and unknown types, each with its location.
func checkKeywords(schema any, at string) (problems []abi.Problem) {
	object, ok := schema.(map[string]any)
	if !ok {
		return nil // the meta-schema has the problem
	}

	for _, name := range slices.Sorted(maps.Keys(object)) {
		if len(problems) >= maxProblems {
			break
		}

		value := object[name]
		at := at + "/" + token(name)
		content, known := vocabulary[name]
		switch {
		case name == "type":
			problems = append(problems, checkType(value, at)...)
		case !known && !strings.HasPrefix(name, "x-"):
			problems = append(problems, abi.Problem{Pointer: at, Message: unknownKeyword(name)})
		}
		problems = append(problems, checkBelow(content, value, at)...)
	}

	return problems
}

// checkBelow checks the schemas inside the value of a keyword.
func checkBelow(c content, value any, at string) (problems []abi.Problem) {
	switch value := value.(type) {
	case map[string]any:
		if c == oneSchema {
			return checkKeywords(value, at)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if c == schemasByName {
				problems = append(problems, checkKeywords(value[name], at+"/"+token(name))...)
			}
		}
	case []any:
		for i, item := range value {
			if c == schemaList {
				problems = append(problems, checkKeywords(item, at+"/"+strconv.Itoa(i))...)
			}
		}
	}
	return problems
}

func unknownKeyword(name string) string {
	if better, ok := instead[name]; ok {
		return "JSON Schema 2020-12 has no such keyword: " + better
	}
	if near := abi.Nearest(name, slices.Sorted(maps.Keys(vocabulary))); near != "" {
		return fmt.Sprintf("unknown keyword, did you mean %q?", near)
	}
	return "unknown keyword: JSON Schema 2020-12 does not have it, and the names of other keywords begin with x-"
}

func checkType(value any, at string) (problems []abi.Problem) {
	switch value := value.(type) {
	case string:
		if !slices.Contains(typeNames, value) {
			hint := "expected one of " + strings.Join(typeNames, ", ")
			if near := abi.Nearest(value, typeNames); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			return []abi.Problem{{Pointer: at, Message: fmt.Sprintf("unknown type %q, %s", short(value), hint)}}
		}
	case []any:
		for i, item := range value {
			if name, ok := item.(string); ok {
				problems = append(problems, checkType(name, at+"/"+strconv.Itoa(i))...)
			}
		}
	}
	return problems
}

// token encodes a name as a token of a JSON pointer.
func token(name string) string { return strings.TrimPrefix(pointer([]string{name}), "/") }
