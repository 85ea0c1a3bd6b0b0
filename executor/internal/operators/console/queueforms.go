package console

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

func (c *Console) queuesHandler() http.HandlerFunc {
	return pageHandler(c, "queues", page{Title: "Queues", Section: "queues"}, c.queueList)
}

// completeQueueForm sets the fields that all forms of a queue share, and returns the form. If the
// change is refused, the page shows the reason at the top.
func (c *Console) completeQueueForm(f form) *form {
	f.idPathParams, f.showProblemAsMessage = append([]string{"queue"}, f.idPathParams...), true
	f.pageURL, f.showPage = listPageURL("/queues"), c.queuesHandler()
	return &f
}

// pauseQueueForm returns the form that pauses or resumes a queue, depending on its button. The
// field seconds is the length of the pause in seconds; 0 means until the queue is resumed.
func (c *Console) pauseQueueForm() *form {
	return c.completeQueueForm(form{
		name:      "pause",
		operation: "PauseQueue",
		save: func(r *http.Request, p *postedForm) (string, error) {
			ctx, caller, name := r.Context(), signin.Caller(r.Context()), r.PathValue("queue")
			if p.values["do"] == "resume" {
				_, err := c.Operate.ResumeQueue(ctx, caller, name)
				return name + " is resumed.", err
			}
			seconds, err := strconv.ParseInt(p.values["seconds"], 10, 32)
			if err != nil || seconds < 0 || p.values["do"] != "pause" {
				return "", incompleteFormError()
			}
			var until time.Time
			if seconds > 0 {
				until = time.Now().Add(time.Duration(seconds) * time.Second)
			}
			_, err = c.Operate.PauseQueue(ctx, caller, name, until)
			return name + " is paused.", err
		},
	})
}

// pauseChoices are the choices for how long a queue is paused.
var pauseChoices = []durationChoice{
	{"0", "until resumed"},
	{"3600", "for 1 hour"},
	{"28800", "for 8 hours"},
	{"86400", "for 1 day"},
}

// groupLimitForm returns the form that limits how many executions a group of runners may have in
// flight.
func (c *Console) groupLimitForm() *form {
	return c.completeQueueForm(form{
		name:          "limit",
		idPathParams:  []string{"group"},
		operation:     "SetQueueGroup",
		savesUnedited: true,
		settings: []setting{{"limit", []string{"limit"}, func(values []string) string {
			if values[0] == "" {
				return "none"
			}
			return values[0]
		}}},
		fieldByAPIName: map[string]string{"maxInFlight": "limit"},
		save: func(r *http.Request, p *postedForm) (string, error) {
			var limit *int64
			if text := p.values["limit"]; text != "" {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < 1 {
					return "", invalidField("limit", "The limit must be a whole number, from 1 on.")
				}
				limit = &n
			}
			queue, group := r.PathValue("queue"), r.PathValue("group")
			ctx := operate.WithQueueGroupCondition(r.Context(), group, func(now *int64) error {
				return p.checkEditConflict(map[string]string{"limit": optionalNumberText(now)})
			})
			_, err := c.Operate.SetQueueGroup(ctx, signin.Caller(ctx), queue, group, limit)
			return "The limit of the group " + group + " of " + queue + " is set.", err
		},
	})
}

func optionalNumberText(n *int64) string {
	if n == nil || *n == 0 {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// ownStreamFields returns the field values of the form for a queue's own stream. put holds the
// stream's settings; nil means that the queue has no own stream.
func ownStreamFields(put *api.PutQueueStream) map[string]string {
	if put == nil {
		put = &api.PutQueueStream{}
	}
	return map[string]string{
		"bytes": optionalNumberText(&put.MaxBytes), "age": optionalNumberText(&put.MaxAgeSeconds),
		"replicas": optionalNumberText(&put.Replicas), "tags": strings.Join(put.PlacementTags, " "),
	}
}

// ownStreamSettings returns the settings of a queue's own stream. It returns nil if the queue has
// none, or if the queue has moved back to the shared stream and its own stream is only being
// drained.
func ownStreamSettings(q api.Queue) *api.PutQueueStream {
	if q.OwnStream == nil || q.OwnStream.Phase == "draining" {
		return nil
	}
	return &api.PutQueueStream{
		MaxBytes: q.OwnStream.MaxBytes, MaxAgeSeconds: q.OwnStream.MaxAgeSeconds,
		Replicas: q.OwnStream.Replicas, PlacementTags: q.OwnStream.PlacementTags,
	}
}

// ownStreamForm returns the form that gives a queue its own stream, or changes the stream's
// settings.
func (c *Console) ownStreamForm() *form {
	return c.completeQueueForm(form{
		name:          "stream",
		operation:     "SetQueueStream",
		savesUnedited: true,
		settings: []setting{
			{
				"settings of its stream",
				[]string{"bytes", "age", "replicas", "tags"},
				describeOwnStreamSettings,
			},
		},
		fieldByAPIName: map[string]string{
			"maxBytes": "bytes", "maxAgeSeconds": "age", "placementTags": "tags",
		},
		labelByAPIName: map[string]string{
			"maxBytes": "Bytes at most", "maxAgeSeconds": "Seconds that messages are kept",
			"replicas": "Replicas", "placementTags": "Tags of its servers",
		},
		save: c.saveOwnStream,
	})
}

// describeOwnStreamSettings describes the settings of a queue's own stream in words. values holds
// the form's fields bytes, age, replicas and tags, in this order.
func describeOwnStreamSettings(values []string) string {
	names := []string{"bytes: ", "seconds: ", "replicas: ", "tags: "}
	var texts []string
	for i, value := range values {
		if value != "" {
			texts = append(texts, names[i]+value)
		}
	}
	return cmp.Or(strings.Join(texts, ", "), "those of the shared stream")
}

func (c *Console) saveOwnStream(r *http.Request, p *postedForm) (string, error) {
	if p.values["do"] == "default" {
		for _, field := range p.form.settings[0].fields {
			p.values[field] = ""
		}
	}
	put := api.PutQueueStream{PlacementTags: strings.Fields(p.values["tags"])}
	p.values["tags"] = strings.Join(put.PlacementTags, " ")
	for field, to := range map[string]*int64{
		"bytes": &put.MaxBytes, "age": &put.MaxAgeSeconds, "replicas": &put.Replicas,
	} {
		if text := p.values[field]; text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return "", invalidField(field, "“"+text+"” is not a whole number.")
			}
			*to = n
		}
	}
	queue := r.PathValue("queue")
	ctx := operate.WithQueueStreamCondition(r.Context(), func(now *api.PutQueueStream) error {
		return p.checkEditConflict(ownStreamFields(now))
	})
	_, err := c.Operate.SetQueueStream(ctx, signin.Caller(ctx), queue, put)
	return queue + " has a stream of its own.", err
}

// moveToSharedStreamForm returns the form that moves a queue back to the shared stream.
func (c *Console) moveToSharedStreamForm() *form {
	return c.completeQueueForm(form{
		name:      "drop-stream",
		operation: "MoveQueueToSharedStream",
		save: func(r *http.Request, _ *postedForm) (string, error) {
			queue := r.PathValue("queue")
			err := c.Operate.MoveQueueToSharedStream(r.Context(), signin.Caller(r.Context()), queue)
			return queue + " is in the shared stream.", err
		},
	})
}

// ownStreamFormData is the template data of the form of a queue's own stream.
type ownStreamFormData struct {
	Row  queueRow
	List queueList
}
