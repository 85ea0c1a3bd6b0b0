package storetest

import (
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var sizeTests = map[string]func(*testing.T, store.Store){
	"grows with the records": func(t *testing.T, s store.Store) {
		empty := readSize(t, s)
		if empty.Bytes <= 0 || empty.Records != 0 || !empty.OldestAcceptedAt.IsZero() {
			t.Errorf("empty: %+v", empty)
		}
		const records = 5_000
		applyNewRecords(t, s, nRecords(records)...)
		full := readSize(t, s)
		if full.Records != records || !full.OldestAcceptedAt.Equal(nthRecord(0).AcceptedAt) {
			t.Errorf("%d records since %s: %+v", records, nthRecord(0).AcceptedAt, full)
		}
		// A record takes more than 100 and less than 1,000 bytes in every driver.
		if grown := full.Bytes - empty.Bytes; grown < records*100 || grown > records*1_000 {
			t.Errorf("%d records take %d bytes", records, grown)
		}
		if pruned := pruneRecords(t, s, nthRecord(2_000).AcceptedAt, records); pruned != 2_000 {
			t.Fatalf("pruned %d", pruned)
		}
		rest := readSize(t, s)
		if rest.Records != records-2_000 ||
			!rest.OldestAcceptedAt.Equal(nthRecord(2_000).AcceptedAt) {
			t.Errorf("after pruning: %+v", rest)
		}
		if rest.ReusableBytes < full.ReusableBytes || rest.ReusableBytes > rest.Bytes {
			t.Errorf("after pruning, %d bytes of %d are free", rest.ReusableBytes, rest.Bytes)
		}
	},
}

func readSize(t *testing.T, s store.Store) store.DatabaseStats {
	t.Helper()
	size, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return size
}
