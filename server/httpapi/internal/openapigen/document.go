package main

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// The parts of an OpenAPI 3.1 document that this API needs, in the order in
// which they are written.

type document struct {
	OpenAPI    string                           `json:"openapi"`
	Info       info                             `json:"info"`
	Servers    []server                         `json:"servers"`
	Security   []map[string][]string            `json:"security"`
	Tags       []tag                            `json:"tags"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components components                       `json:"components"`
	Elsewhere  elsewhere                        `json:"externalDocs"`
}

type info struct {
	Title       string            `json:"title"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	Contact     map[string]string `json:"contact"`
	License     map[string]string `json:"license"`
}

type elsewhere struct {
	Description string `json:"description"`
	URL         string `json:"url"`
}

type server struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type operation struct {
	OperationID string                 `json:"operationId"`
	Tags        []string               `json:"tags"`
	Summary     string                 `json:"summary"`
	Description string                 `json:"description"`
	Security    *[]map[string][]string `json:"security,omitempty"`
	Parameters  []parameter            `json:"parameters,omitempty"`
	RequestBody *requestBody           `json:"requestBody,omitempty"`
	Responses   map[string]*response   `json:"responses"`
}

type parameter struct {
	Ref         string             `json:"$ref,omitempty"`
	Name        string             `json:"name,omitempty"`
	In          string             `json:"in,omitempty"`
	Required    bool               `json:"required,omitempty"`
	Description string             `json:"description,omitempty"`
	Schema      *jsonschema.Schema `json:"schema,omitempty"`
}

type requestBody struct {
	Required bool                `json:"required"`
	Content  map[string]*content `json:"content"`
}

type response struct {
	Ref         string              `json:"$ref,omitempty"`
	Description string              `json:"description,omitempty"`
	Headers     map[string]header   `json:"headers,omitempty"`
	Content     map[string]*content `json:"content,omitempty"`
}

type header struct {
	Description string             `json:"description"`
	Required    bool               `json:"required,omitempty"`
	Schema      *jsonschema.Schema `json:"schema"`
}

type content struct {
	Schema  *jsonschema.Schema `json:"schema"`
	Example json.RawMessage    `json:"example,omitempty"`
}

type components struct {
	SecuritySchemes map[string]securityScheme     `json:"securitySchemes"`
	Parameters      map[string]parameter          `json:"parameters"`
	Responses       map[string]*response          `json:"responses"`
	Schemas         map[string]*jsonschema.Schema `json:"schemas"`
}

type securityScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description"`
}
