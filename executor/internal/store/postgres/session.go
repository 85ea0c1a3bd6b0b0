package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

// connectTimeout is the maximum duration of one attempt to connect, unless the URL sets another.
const connectTimeout = 5 * time.Second

// configureDialer makes the client notice within seconds that a server is gone. By default, pgxpool
// allows two minutes for an attempt to connect, and the system probes an idle connection only after
// hours.
func configureDialer(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	dialer := net.Dialer{
		Timeout: config.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     5 * time.Second,
			Interval: 5 * time.Second,
			Count:    3,
		},
	}
	config.DialFunc = dialer.DialContext
}

// sessionSettings are the settings of every session. They override the defaults of the server, the
// database and the role, but settings in the URL override them.
const sessionSettings = `(VALUES
	-- Queries are planned for the tables as they are. A plan that was cached while a table was
	-- empty reads all of it once it is large.
	('plan_cache_mode', 'force_custom_plan'),
	-- An executor that is frozen or lost in a transaction holds locks that others wait for.
	('idle_in_transaction_session_timeout', '5s'),
	-- A wait for a lock is given up and begun again, so that somebody hears of it.
	('lock_timeout', '10s'),
	-- Nothing here takes so long. A client that is gone does not end its query.
	('statement_timeout', '1min'),
	-- The server notices within 20 seconds that this host is gone.
	('tcp_keepalives_idle', '5'),
	('tcp_keepalives_interval', '5'),
	('tcp_keepalives_count', '3'),
	('tcp_user_timeout', '20s')
) AS wanted (name, value)`

// prepareConnection applies the settings that the driver relies on. It turns synchronous_commit on
// even if the URL turns it off, because a commit that was reported must survive a crash.
func prepareConnection(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT set_config(name, wanted.value, false)
		FROM pg_settings JOIN `+sessionSettings+` USING (name) WHERE source <> 'client'
		UNION ALL SELECT set_config('synchronous_commit', 'on', false)
		WHERE current_setting('synchronous_commit') = 'off'`)
	return err
}

// serverIdentity identifies a database for as long as its server runs. It is different after a
// failover to a standby, and after the database has been created again. It is also different after
// the data has been replaced by another copy, because the server must be stopped for that.
type serverIdentity struct {
	startedMicros int64  // when the server was started, in microseconds since 1970
	databaseOID   uint32 // the OID of the database
}

// identifyServer returns the identity of the database that a connection belongs to.
func identifyServer(ctx context.Context, conn *pgx.Conn) (serverIdentity, error) {
	var started time.Time
	var id serverIdentity
	err := conn.QueryRow(ctx, `SELECT pg_postmaster_start_time(), oid FROM pg_database
		WHERE datname = current_database()`).Scan(&started, &id.databaseOID)
	id.startedMicros = started.UnixMicro()
	return id, err
}
