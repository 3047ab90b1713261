//! What a client is told of its requests: how far a run is, and what it took. The same goes to the party's records.

use std::time::{Duration, Instant};

use covey_messages::{Done, Fill, PhaseMessage, RowsRun, Run, SessionReply, SessionRequest, ShareData, wire};
use covey_protocols::Protocol;
use covey_runtime::profile::Timing;
use covey_runtime::{Observer, Profile, Step};
use covey_transport::{Endpoint, Meter, Network, PeerId, Session as Streams, Snapshot};

use crate::records::{self, Kind, Records, Traffic};
use crate::usage;

/// How often a party reports progress, at most.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// The party that reports progress: it works through every step online, whatever the protocol.
pub(crate) const REPORTER: usize = 1;

/// What a request is, for the records.
pub(crate) fn request_of(request: &SessionRequest) -> Option<records::Request> {
    let (kind, batch, runs) = match *request {
        SessionRequest::Run(Run { phase, batch, count, .. })
        | SessionRequest::RunRows(RowsRun { run: Run { phase, batch, count, .. }, .. }) => {
            let kind = match phase {
                PhaseMessage::Joint => Kind::Joint,
                PhaseMessage::Preprocess => Kind::Preprocess,
                PhaseMessage::Online => Kind::Online,
            };
            (kind, batch, count)
        }
        SessionRequest::Fill(Fill { batch, count }) => (Kind::FillStore, batch, count),
        SessionRequest::ShareData(ShareData { rows, .. }) => (Kind::ShareData, rows as usize, 1),
        SessionRequest::Keep(_)
        | SessionRequest::Resume(_)
        | SessionRequest::Forget(_)
        | SessionRequest::Attach(_)
        | SessionRequest::MayServeWeights
        | SessionRequest::ServeWeights
        | SessionRequest::Close => return None,
    };
    Some(records::Request { kind, runs, samples: samples(batch, runs) })
}

/// The samples of so many runs.
pub(crate) fn samples(batch: usize, runs: u32) -> u64 {
    (batch as u64).saturating_mul(runs.into())
}

/// What the session's meter counts, for its reports and the party's figures.
#[derive(Clone, Copy)]
pub(crate) struct Counts<'a> {
    pub streams: &'a Streams,
    pub records: &'a Records,
}

impl Counts<'_> {
    /// What was counted since this was last called.
    pub fn take(&self) -> (Snapshot, Traffic) {
        let snapshot = self.streams.meter().take();
        let traffic = Traffic::of(self.streams, &snapshot);
        self.records.metrics.traffic(&traffic);
        (snapshot, traffic)
    }

    /// What was exchanged and used since then.
    pub fn report(&self, timings: Vec<Timing>, stored: usize, cpu: Option<f64>) -> (Done, Traffic) {
        self.streams.flush();
        let (mut snapshot, traffic) = self.take();
        // Control messages belong to no node and to no protocol.
        snapshot.rows.retain(|row| row.node != Meter::NO_NODE);
        let socket_bytes_sent = traffic.parties.sent + traffic.client.sent;
        let profile = Profile::new(timings, self.streams.me(), &snapshot);
        (Done { profile, stored, socket_bytes_sent, usage: usage::since(cpu) }, traffic)
    }
}

/// Tells the client how far the run is.
pub(crate) struct Reporter<'a> {
    pub control: &'a mut dyn Endpoint,
    pub client: PeerId,
    pub reports: bool,
    pub last: Instant,
}

impl<P: Protocol + ?Sized> Observer<P> for Reporter<'_> {
    fn begins(&mut self, step: &Step, index: usize, count: usize) {
        if self.reports && self.last.elapsed() >= REPORT_EVERY {
            self.last = Instant::now();
            let progress = SessionReply::Progress { step: index, steps: count, name: step.name.clone() };
            // If this fails the session has failed, which the protocol's next message finds out.
            let _ = wire::send_control(self.control, self.client, &progress);
        }
    }
}
