//! The events of a run: calls arrive, are answered, and let the clients continue.

use super::*;

impl World {
    pub(super) fn new(nodes: usize, clients: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let servers: Vec<Server> = (0..nodes)
            .map(|_| {
                let mut server = Server::new(random.below(4_000_000) as i64 - 2_000_000);
                // Just within what the drift covers.
                server.rate_ppm = random.below(18_000) as i64 - 9_000;
                server
            })
            .collect();
        let clients = (0..clients)
            .map(|client| Client {
                cluster: connected(&servers, at(0)),
                phase: Phase::Idle { until: at(0) },
                acquisition: Acquisition::new(world_terms(nodes), at(0), client as u64),
                attempt: None,
                releases: Vec::new(),
                relies_until: None,
                paused_until: at(0),
                wakes: at(0),
                grants: 0,
            })
            .collect();
        Self {
            random,
            now: at(0),
            servers,
            clients,
            events: BTreeMap::new(),
            serial: 0,
            fence: Ballot::default(),
            expired: 0,
        }
    }

    pub(super) fn run(&mut self) {
        for client in 0..self.clients.len() {
            self.advance(client);
        }
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > at(0) + RUN {
                break;
            }
            self.now = time;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        let client = match &event {
            Event::Arrives { .. } => None,
            Event::Answers { call, .. } => Some(call.client),
            Event::Wakes { client } => Some(*client),
        };
        if let Some(thaws) = client.map(|client| self.clients[client].paused_until)
            && thaws > self.now
        {
            return self.plan(thaws, event);
        }
        match event {
            Event::Arrives { call, op, token } => self.arrives(call, op, &token),
            Event::Answers { call, outcome } => self.answers(call, outcome),
            // Scheduled before another event woke the client: nothing to do any more.
            Event::Wakes { client } if self.clients[client].wakes > self.now => {}
            Event::Wakes { client } => self.advance(client),
        }
    }

    fn plan(&mut self, at: Timestamp, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    /// The delay of a packet: mostly short, sometimes longer than a call timeout or a lease.
    fn delay(&mut self) -> Duration {
        let longest = match self.random.below(100) {
            0..80 => 5,
            80..95 => 60,
            95..99 => 250,
            _ => 2_500,
        };
        self.random.within(ms(longest))
    }

    fn send(&mut self, client: usize, node: usize, round: Round, token: &Token, op: Op) {
        let call = Call {
            client,
            node,
            round,
            sent: self.now,
        };
        let arrives = self.now + self.delay();
        match self.random.below(100) {
            // Lost, without an error.
            0..2 => {}
            2..4 => self.plan(
                self.now + ms(1),
                Event::Answers {
                    call,
                    outcome: not_sent(),
                },
            ),
            _ => {
                let token = token.clone();
                self.plan(arrives, Event::Arrives { call, op, token });
            }
        }
    }

    fn arrives(&mut self, call: Call, op: Op, token: &Token) {
        let outcome = self.servers[call.node].ask(self.now, token, op);
        let answers = self.now + self.delay();
        match self.random.below(100) {
            0..3 => {}
            3..5 => self.plan(
                answers,
                Event::Answers {
                    call,
                    outcome: unknown(),
                },
            ),
            more => {
                if more < 10 {
                    let again = answers + self.delay();
                    let outcome = outcome.clone();
                    self.plan(again, Event::Answers { call, outcome });
                }
                self.plan(answers, Event::Answers { call, outcome });
            }
        }
    }

    fn answers(&mut self, call: Call, outcome: Outcome) {
        let client = &mut self.clients[call.client];
        client
            .cluster
            .observe(call.node, &outcome, call.sent, self.now);
        let release = client
            .releases
            .iter_mut()
            .find(|one| one.round == call.round);
        if let Some(release) = release {
            release
                .machine
                .handle_reply(call.node, outcome, None, self.now);
        } else if let Some((round, attempt)) = &mut client.attempt
            && *round == call.round
        {
            attempt.handle_reply(call.node, outcome, None, self.now);
        }
        self.advance(call.client);
    }

    /// Lets `client` do what is due now, and schedules its next timeout.
    fn advance(&mut self, client: usize) {
        if self.random.one_in(400) {
            self.clients[client].paused_until = self.now + self.random.within(ms(1_500));
        }
        self.drive_releases(client);
        while self.step(client) {}
        self.drive_releases(client);
        let this = &self.clients[client];
        let phase = match &this.phase {
            Phase::Idle { until } | Phase::Holding { until, .. } => Some(*until),
            Phase::Pausing { at } => Some(*at),
            Phase::Trying => this
                .attempt
                .as_ref()
                .and_then(|(_, one)| one.poll_timeout()),
        };
        let releases = this
            .releases
            .iter()
            .filter_map(|one| one.machine.poll_timeout());
        if let Some(next) = releases.chain(phase).min() {
            assert!(next > self.now, "a busy loop");
            if this.wakes <= self.now || next < this.wakes {
                self.clients[client].wakes = next;
                self.plan(next, Event::Wakes { client });
            }
        }
    }

    /// One step of a client. Returns whether another step may follow at once.
    fn step(&mut self, client: usize) -> bool {
        let now = self.now;
        let nodes = self.servers.len();
        let seed = self.random.next();
        let this = &mut self.clients[client];
        match this.phase {
            Phase::Idle { until } if until <= now => {
                this.acquisition = Acquisition::new(world_terms(nodes), now, seed);
                self.propose(client);
            }
            Phase::Pausing { at } if at <= now => self.propose(client),
            Phase::Trying => return self.judge(client),
            Phase::Holding { until, crashes } if until <= now => {
                this.relies_until = None;
                let (_, attempt) = this.attempt.take().unwrap();
                if !crashes {
                    self.begin_release(client, &attempt, ReleaseKind::Final);
                }
                self.rest(client);
            }
            _ => return false,
        }
        true
    }

    fn rest(&mut self, client: usize) {
        let until = self.now + ms(1) + self.random.within(ms(200));
        self.clients[client].phase = Phase::Idle { until };
    }

    fn propose(&mut self, client: usize) {
        self.serial += 1;
        let round = Round(self.serial);
        let this = &mut self.clients[client];
        let fresh = token(self.serial);
        let attempt = this.acquisition.begin(&mut this.cluster, self.now, fresh);
        let (who, ballot) = (attempt.token().clone(), attempt.ballot());
        this.attempt = Some((round, attempt));
        this.phase = Phase::Trying;
        for node in 0..self.servers.len() {
            let op = Op::Acquire(Acquire {
                ballot,
                ttl_ms: LEASE.as_millis() as u64,
                label: Arc::from(""),
                ticket: None,
                not_after_us: None,
            });
            self.send(client, node, round, &who, op);
        }
    }

    fn judge(&mut self, client: usize) -> bool {
        let now = self.now;
        let this = &mut self.clients[client];
        let (_, attempt) = this.attempt.as_mut().unwrap();
        attempt.handle_timeout(now);
        for (node, vote) in attempt.votes().enumerate() {
            if *vote == Vote::TimedOut {
                this.cluster.silent(node);
            }
        }
        if attempt.verdict().is_none() {
            return false;
        }
        match this.acquisition.conclude(attempt, &this.cluster, now) {
            Next::Granted { deadline } => {
                let ballot = attempt.ballot();
                self.granted(client, ballot, deadline);
            }
            Next::Retry { at, .. } => {
                this.phase = Phase::Pausing { at };
                let (_, attempt) = this.attempt.take().unwrap();
                self.begin_release(client, &attempt, ReleaseKind::Undo);
            }
            Next::GiveUp(_) => {
                let (_, attempt) = this.attempt.take().unwrap();
                self.begin_release(client, &attempt, ReleaseKind::Undo);
                self.rest(client);
            }
        }
        true
    }

    fn granted(&mut self, client: usize, ballot: Ballot, deadline: Timestamp) {
        for (other, rival) in self.clients.iter().enumerate() {
            let overlap = rival
                .relies_until
                .filter(|relies_until| *relies_until > self.now);
            assert_eq!(
                overlap, None,
                "{client} and {other} both hold at {:?}",
                self.now
            );
            self.expired += u32::from(rival.relies_until.is_some());
        }
        assert!(ballot > self.fence, "{ballot:?} after {:?}", self.fence);
        self.fence = ballot;
        assert!(deadline >= self.now + LEAST);
        let crashes = self.random.one_in(3);
        // A client that crashes may have been working until its deadline, and a little longer.
        let until = match crashes || self.random.one_in(4) {
            true => deadline + ms(500),
            false => self.now + ms(1) + self.random.within(deadline.since(self.now)),
        };
        let this = &mut self.clients[client];
        this.grants += 1;
        this.relies_until = Some(deadline);
        this.phase = Phase::Holding { until, crashes };
    }

    fn begin_release(&mut self, client: usize, attempt: &Attempt, kind: ReleaseKind) {
        self.serial += 1;
        let until = self.now + LEASE;
        self.clients[client].releases.push(RunningRelease {
            round: Round(self.serial),
            machine: PendingRelease::new(kind, attempt.remains(), self.now, until, CALL_TIMEOUT),
            token: attempt.token().clone(),
            ballot: attempt.ballot(),
            kind,
        });
    }

    fn drive_releases(&mut self, client: usize) {
        let mut calls = Vec::new();
        for release in &mut self.clients[client].releases {
            release.machine.handle_timeout(self.now);
            while let Some((node, fate_unknown)) = release.machine.poll_send(self.now) {
                let op = Op::Release(Release {
                    ballot: release.ballot,
                    kind: release.kind,
                    fate_unknown,
                    ticket: None,
                    stays: true,
                    keep_ms: None,
                    delay_ms: 0,
                });
                calls.push((node, release.round, release.token.clone(), op));
            }
        }
        self.clients[client]
            .releases
            .retain(|one| !one.machine.is_settled());
        for (node, round, token, op) in calls {
            self.send(client, node, round, &token, op);
        }
    }
}
