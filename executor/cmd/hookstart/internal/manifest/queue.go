package manifest

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// Queue is the document that describes a queue. A queue without a document, or whose document has
// no stream, uses the shared stream.
type Queue struct {
	Kind string `json:"kind" yaml:"kind"`
	ID   string `json:"id" yaml:"id"`
	// Stream holds the settings of the queue's own stream. If it is absent (nil), the queue does
	// not have its own stream.
	Stream *QueueStream `json:"stream,omitempty" yaml:"stream,omitempty"`
}

// QueueStream holds the settings of a queue's own stream. Settings that are absent are taken from
// the shared stream, except that the size is unlimited.
type QueueStream struct {
	MaxBytes      int64    `json:"maxBytes,omitempty" yaml:"maxBytes,omitempty"` // 0 means no limit
	MaxAgeSeconds int64    `json:"maxAgeSeconds,omitempty" yaml:"maxAgeSeconds,omitempty"`
	Replicas      int64    `json:"replicas,omitempty" yaml:"replicas,omitempty"`
	PlacementTags []string `json:"placementTags,omitempty" yaml:"placementTags,omitempty"`
}

func (q Queue) key() string { return "queue " + q.ID }

// addQueues reads the queues of the installation, and adds those that have their own stream, or are
// moving to one, to the set.
func (s *DocumentSet) addQueues(ctx context.Context, client *apiclient.Client) error {
	for q, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Queue], error) {
		return client.Queues(ctx, p)
	}) {
		if err != nil {
			return err
		}
		own := q.OwnStream
		leaving := []string{"movingOut", "closedOut", "draining"}
		if own == nil || slices.Contains(leaving, own.Phase) {
			continue
		}
		s.Queues = append(s.Queues, Queue{Kind: KindQueue, ID: q.Queue, Stream: &QueueStream{
			MaxBytes:      own.MaxBytes,
			MaxAgeSeconds: own.MaxAgeSeconds,
			Replicas:      own.Replicas,
			PlacementTags: own.PlacementTags,
		}})
	}
	return nil
}

// step returns the step that creates, changes or removes the queue's own stream, or nil if nothing
// changes. The step must come after the steps of the workflows, because a caller with access to one
// account may change a queue only if a workflow of that account uses it. The step's Apply succeeds
// only after the queue has moved completely.
func (q Queue) step(before Queue) *Step {
	lines := diffLines(before.fields(), q.fields())
	if len(lines) == 0 {
		return nil
	}
	return &Step{
		DescriptionLines: append([]string{"~ " + q.key()}, lines...), key: q.key(),
		Apply: func(ctx context.Context, client *apiclient.Client) error {
			if q.Stream == nil {
				return client.DropQueueStream(ctx, q.ID)
			}
			_, err := client.SetQueueStream(ctx, q.ID, api.PutQueueStream(*q.Stream))
			return err
		},
	}
}

func (q Queue) fields() fieldTexts {
	if q.Stream == nil {
		return nil
	}
	f := fieldTexts{"stream": "its own"}
	for name, number := range map[string]int64{
		"maxBytes":      q.Stream.MaxBytes,
		"maxAgeSeconds": q.Stream.MaxAgeSeconds,
		"replicas":      q.Stream.Replicas,
	} {
		if number != 0 {
			f["stream."+name] = strconv.FormatInt(number, 10)
		}
	}
	if len(q.Stream.PlacementTags) > 0 {
		f["stream.placementTags"] = strings.Join(q.Stream.PlacementTags, ", ")
	}
	return f
}
