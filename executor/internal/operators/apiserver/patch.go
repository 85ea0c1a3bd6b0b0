package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// patchMediaType is the documented media type of a patch. A body with any other type is also read
// as a patch.
const patchMediaType = "application/merge-patch+json"

// patchBody is the input of a call with a JSON merge patch (RFC 7396).
type patchBody struct {
	RawBody []byte `contentType:"application/json"`
}

// patcher applies JSON merge patches to the settings of a resource. T is the type of these
// settings.
type patcher[T any] struct {
	schemas huma.Registry
	schema  *huma.Schema
	// unmergedKeys lists the members of the settings that a patch replaces as a whole. Objects in
	// these members are not merged.
	unmergedKeys []string
}

func newPatcher[T any](to huma.API, unmergedKeys ...string) patcher[T] {
	schemas := to.OpenAPI().Components.Schemas
	return patcher[T]{schemas, schemas.Schema(reflect.TypeFor[T](), true, ""), unmergedKeys}
}

// applyFunc returns a function that applies patch to the settings passed to it. The function
// validates the resulting settings as it would validate the body of a PUT.
func (p patcher[T]) applyFunc(patch []byte) func(*T) error {
	return func(document *T) error {
		before, err := encodeUnescapedJSON(document)
		if err != nil {
			return err
		}
		var form any // for validation: the body must be one JSON text in UTF-8
		if err := readJSON(patch, &form); err != nil {
			return invalidFieldsProblem(api.FieldError{Field: "body", Problem: err.Error()})
		}
		if _, ok := form.(map[string]any); !ok {
			return invalidFieldsProblem(api.FieldError{
				Field:   "body",
				Problem: "must be a JSON object with the members to change",
			})
		}
		after, err := mergePatch(before, patch, p.schemas, p.schema, p.unmergedKeys, maxMergeDepth)
		if err != nil {
			return invalidFieldsProblem(api.FieldError{Field: "body", Problem: err.Error()})
		}
		return p.validateAndDecode(after, document)
	}
}

func (p patcher[T]) validateAndDecode(text []byte, into *T) error {
	var form any
	if err := readJSON(text, &form); err != nil {
		return invalidFieldsProblem(api.FieldError{Field: "body", Problem: err.Error()})
	}
	found := &huma.ValidateResult{}
	path := huma.NewPathBuffer(nil, 0)
	path.Push("body")
	huma.Validate(p.schemas, p.schema, path, huma.ModeWriteToServer, form, found)
	if len(found.Errors) > 0 {
		fields := make([]api.FieldError, len(found.Errors))
		for i, err := range found.Errors {
			fields[i] = fieldErrorOf(err)
		}
		return invalidFieldsProblem(fields...)
	}
	var result T
	if err := readJSON(text, &result); err != nil {
		return invalidFieldsProblem(api.FieldError{Field: "body", Problem: err.Error()})
	}
	*into = result
	return nil
}

// removesMember reports whether a patch removes the member with the given name from the resource.
func removesMember(patch []byte, name string) bool {
	var changes map[string]json.RawMessage
	return json.Unmarshal(patch, &changes) == nil &&
		bytes.Equal(bytes.TrimSpace(changes[name]), []byte("null"))
}

// maxMergeDepth is the maximum depth of nested objects that are merged. No settings are nested that
// deeply. Without a limit, work and memory would grow with the square of a patch's depth, because
// each level copies everything below it.
const maxMergeDepth = 10

var errPatchTooDeep = fmt.Errorf("has objects that are nested deeper than %d levels", maxMergeDepth)

// mergePatch applies a JSON merge patch to the JSON text target and returns the result. It merges
// objects, except the members in unmerged. Any other value in the patch replaces the current one,
// byte for byte, and null removes a member.
//
// schema describes target. If schema lacks a member, a null for this member stays in the result, so
// that the validation refuses it. If schema is nil, null removes any member. If more than depth
// nested objects would have to be merged, mergePatch returns errPatchTooDeep.
func mergePatch(
	target, patch []byte, schemas huma.Registry, schema *huma.Schema, unmerged []string, depth int,
) ([]byte, error) {
	var changes, members map[string]json.RawMessage
	if json.Unmarshal(patch, &changes) != nil || changes == nil {
		return patch, nil //nolint:nilerr // a patch that is not an object replaces the target
	}
	if depth == 0 {
		return nil, errPatchTooDeep
	}
	if json.Unmarshal(target, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	known := propertiesOf(schemas, schema)
	for name, value := range changes {
		switch {
		case bytes.Equal(bytes.TrimSpace(value), []byte("null")):
			if delete(members, name); known != nil && known[name] == nil {
				members[name] = value
			}
		case slices.Contains(unmerged, name):
			members[name] = value
		default:
			merged, err := mergePatch(members[name], value, schemas, known[name], nil, depth-1)
			if err != nil {
				return nil, err
			}
			members[name] = merged
		}
	}
	return encodeMembers(members)
}

// propertiesOf returns the properties of an object with the given schema, or nil if the schema has
// none.
func propertiesOf(schemas huma.Registry, schema *huma.Schema) map[string]*huma.Schema {
	if schema != nil && schema.Ref != "" {
		schema = schemas.SchemaFromRef(schema.Ref)
	}
	if schema == nil {
		return nil
	}
	return schema.Properties
}

// encodeMembers encodes an object. Unlike encoding/json, it does not compact the values.
func encodeMembers(members map[string]json.RawMessage) ([]byte, error) {
	text := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		encoded, err := encodeUnescapedJSON(name)
		if err != nil {
			return nil, err
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, encoded...), ':'), members[name]...)
	}
	return append(text, '}'), nil
}

// registerPatch adds a call that patches a resource whose settings are a T. Every member of T is
// optional in the body.
func registerPatch[T, I, O any](
	to huma.API, c operationSpec, handle func(context.Context, operate.Caller, *I) (*O, error),
) {
	c.method, c.anyJSON = http.MethodPatch, true
	c.description += " The body is a JSON merge patch (RFC 7396): what it does not name stays, " +
		"and null removes a member. " +
		"`" + patchMediaType +
		"` and `application/json` count the same. With the `ETag` of an earlier answer as " +
		"`If-Match`, only that version is changed."
	c.problemCodes = append(c.problemCodes, api.CodeNotFound, api.CodeBodyTooLarge,
		api.CodeNotConfirmed)
	registerOperation(to, c, handle)
	schemas := to.OpenAPI().Components.Schemas
	part := *schemas.SchemaFromRef(schemas.Schema(reflect.TypeFor[T](), true, "").Ref)
	part.Required = nil
	to.OpenAPI().Paths[api.PathPrefix+c.path].Patch.RequestBody = &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{
			patchMediaType: {Schema: &part}, "application/json": {Schema: &part},
		},
	}
}
