package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humahttprouter"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
)

// maxRestorePartBytes is the maximum length of one part of a restore, in bytes. The store never
// creates longer parts, even for a record whose output is as long as a message may be.
const maxRestorePartBytes = 32 << 20

func (s *server) routeBackup(to huma.API) {
	registerOperation(to, operationSpec{
		method:  http.MethodGet,
		path:    "/backup/records",
		id:      "back-up-records",
		tag:     tagInstallation,
		summary: "Read what the database keeps",
		description: "As it was at one moment, one JSON text a line. It is a part of what " +
			"`hookstart admin backup` makes; for the rest of a backup, and for putting it back, " +
			"use that command.",
		responses: map[string]*huma.Response{"200": {
			Description: "Lines, until all is said. A stream that breaks off is not complete: " +
				"the last line of a complete one is `{}`.",
			Content: map[string]*huma.MediaType{
				"application/x-ndjson": {Schema: &huma.Schema{Type: huma.TypeString}},
			},
		}},
	}, s.backUpRecords)
	registerOperation(to, operationSpec{
		method:      http.MethodGet,
		path:        "/backup/audit",
		id:          "back-up-audit",
		tag:         tagInstallation,
		summary:     "Read the audit's entries of what was changed while a backup was taken",
		description: "In the form of `GET /backup/records`. `hookstart admin backup` calls it.",
		responses: map[string]*huma.Response{"200": {
			Description: "As for `GET /backup/records`.",
			Content: map[string]*huma.MediaType{
				"application/x-ndjson": {Schema: &huma.Schema{Type: huma.TypeString}},
			},
		}},
	}, s.backUpAudit)
	registerNoContent(to, operationSpec{
		method:       http.MethodPost,
		path:         "/backup/records",
		id:           "restore-records",
		tag:          tagInstallation,
		summary:      "Write a part of a backup into the database",
		description:  "One line of what the same path reads. `hookstart admin restore` calls it.",
		problemCodes: []string{api.CodeBodyTooLarge, api.CodeNotEmpty},
		anyJSON:      true,
		bodyLimit:    maxRestorePartBytes,
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		First   bool   `query:"first" doc:"Whether this is the first part of the backup. Then the database must be empty."`
		RawBody []byte `contentType:"application/json"`
	},
	) error {
		return s.Operate.RestoreRecords(ctx, caller, in.RawBody, in.First)
	})
}

// auditBackupInput selects the audit entries to back up.
type auditBackupInput struct {
	Bucket string    `query:"bucket" enum:"registry,registry_secrets" required:"true" doc:"The bucket whose changes are returned."`
	Since  time.Time `query:"since" doc:"Selects the entries of this time or later."`
	Until  time.Time `query:"until" doc:"Selects the entries of this time or earlier."`
}

func (s *server) backUpAudit(
	ctx context.Context, caller operate.Caller, in *auditBackupInput,
) (*huma.StreamResponse, error) {
	return s.ndjsonResponse(ctx, func(write func(part []byte) error) error {
		return s.Operate.BackUpAudit(ctx, caller, in.Bucket, in.Since, in.Until, write)
	})
}

func (s *server) backUpRecords(
	ctx context.Context, caller operate.Caller, _ *struct{},
) (*huma.StreamResponse, error) {
	return s.ndjsonResponse(ctx, func(write func(part []byte) error) error {
		return s.Operate.BackUpRecords(ctx, caller, write)
	})
}

// ndjsonResponse returns a response that read produces. read passes each part of the response to
// its argument, the function write, and each part becomes one line. If read succeeds, the last line
// is {}, which tells the client that the response is complete. If read fails before the first part,
// the response is a problem.
func (*server) ndjsonResponse(
	ctx context.Context, read func(write func(part []byte) error) error,
) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		_, w, _ := humahttprouter.Unwrap(c)
		to := streamWriter{w, http.NewResponseController(w)}
		began := false
		err := read(func(part []byte) error {
			began = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			return to.write(string(part) + "\n")
		})
		switch {
		case err == nil:
			w.Header().Set("Content-Type", "application/x-ndjson")
			err = to.write("{}\n")
		case !began:
			p := problemOf(err)
			logProblem(ctx, p, err)
			p.write(w)
			return
		}
		requestlog.FromContext(ctx).Err = err
	}}, nil
}
