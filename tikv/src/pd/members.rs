//! Whom to ask: the members of the placement driver, its leader, and what identifies the cluster.
//!
//! One place holds the connection to the leader, for unary calls and for timestamps alike. Whoever sees it
//! fail says so ([`Members::forget`]); the next caller looks for the leader again, one at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tonic::Status;
use tonic::transport::Channel;
use types::{Error, Result};

use crate::backoff::{Backoff, Pause};
use crate::connect::{MESSAGE_BYTES_MAX, connect};
use crate::options::Options;
use crate::proto::pdpb::{self, pd_client::PdClient};

/// How long one member is asked who leads.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection to the leader, and which one it is of those that there were.
#[derive(Clone)]
pub(crate) struct Leader {
    pub(crate) client: PdClient<Channel>,
    pub(crate) generation: u64,
    url: String,
}

/// The members of the placement driver.
pub(crate) struct Members {
    options: Arc<Options>,
    cluster_id: u64,
    /// The clients' URLs of the members as last heard, after the configured ones.
    urls: Mutex<Vec<String>>,
    leader: AsyncMutex<(u64, Option<Leader>)>,
}

fn client(channel: Channel) -> PdClient<Channel> {
    PdClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Whether a text says that whoever answered does not lead.
pub(crate) fn says_not_leader(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["not leader", "no leader", "is not leader", "not the leader", "not served", "not started"]
        .iter()
        .any(|phrase| text.contains(phrase))
}

/// What a member says about the cluster.
async fn ask(options: &Options, url: &str, cluster_id: u64) -> Result<pdpb::GetMembersResponse> {
    let asking = async {
        let mut client = client(connect(options, url).await?);
        let header = Some(pdpb::RequestHeader { cluster_id, ..Default::default() });
        let answer = client.get_members(pdpb::GetMembersRequest { header }).await;
        answer.map_err(|status| Error::unavailable(format!("member {url}: {}", describe(&status))))
    };
    let answer = tokio::time::timeout(MEMBER_TIMEOUT, asking).await;
    let answer = answer.map_err(|_| Error::unavailable(format!("member {url} does not answer")))??;
    let answer = answer.into_inner();
    if let Some(error) = answer.header.as_ref().and_then(|header| header.error.as_ref())
        && error.r#type() != pdpb::ErrorType::Ok
    {
        return Err(Error::unavailable(format!("member {url}: {}", error.message)));
    }
    Ok(answer)
}

/// A status in words.
pub(crate) fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

fn cluster_of(answer: &pdpb::GetMembersResponse) -> u64 {
    answer.header.as_ref().map_or(0, |header| header.cluster_id)
}

/// The identity that all members that answer have in common; none of them need be the leader.
async fn agree(options: &Options) -> Result<u64> {
    let asked = options.endpoints.iter().map(|url| async move { (url, ask(options, url, 0).await) });
    let mut found: Option<(&String, u64)> = None;
    let mut failure = Error::invalid("no member of the placement driver is named");
    for (url, answer) in futures::future::join_all(asked).await {
        let id = match answer {
            Ok(answer) => cluster_of(&answer),
            Err(error) => {
                tracing::debug!(url, %error, "a member does not answer");
                failure = error;
                continue;
            }
        };
        match found {
            Some((first, other)) if other != id => {
                return Err(Error::invalid(format!(
                    "members of two clusters are named: {first} is of {other}, {url} of {id}"
                )));
            }
            Some(_) => {}
            None => found = Some((url, id)),
        }
    }
    match found {
        Some((url, 0)) => Err(Error::unavailable(format!("the cluster of {url} has no identity yet"))),
        Some((_, id)) => Ok(id),
        None => Err(failure),
    }
}

impl Members {
    /// Finds the cluster.
    ///
    /// # Errors
    /// `Unavailable` if nobody answers in time, `Invalid` if the endpoints are of several clusters.
    pub(crate) async fn find(options: Arc<Options>) -> Result<Members> {
        let mut backoff = Backoff::new(options.pd_budget);
        let cluster_id = loop {
            match agree(&options).await {
                Ok(id) => break id,
                Err(error) if error.kind() != types::ErrorKind::Unavailable => return Err(error),
                Err(error) if !backoff.wait(Pause::Call).await => return Err(error),
                Err(_) => {}
            }
        };
        let urls = Mutex::new(options.endpoints.clone());
        Ok(Members { options, cluster_id, urls, leader: AsyncMutex::new((0, None)) })
    }

    /// The cluster's identity.
    pub(crate) fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The head of every request.
    pub(crate) fn header(&self) -> pdpb::RequestHeader {
        pdpb::RequestHeader {
            cluster_id: self.cluster_id,
            caller_id: self.options.request_source.clone(),
            ..Default::default()
        }
    }

    /// The leader, looked for if it is not known.
    ///
    /// # Errors
    /// `Unavailable` if no member knows one.
    pub(crate) async fn leader(&self) -> Result<Leader> {
        let mut guard = self.leader.lock().await;
        if let Some(leader) = &guard.1 {
            return Ok(leader.clone());
        }
        let (client, url) = self.look().await?;
        let generation = guard.0 + 1;
        let leader = Leader { client, generation, url };
        *guard = (generation, Some(leader.clone()));
        Ok(leader)
    }

    /// Says that a leader does not answer, or does not lead; a newer one stays.
    pub(crate) async fn forget(&self, generation: u64) {
        let mut guard = self.leader.lock().await;
        if guard.0 == generation {
            guard.1 = None;
        }
    }

    /// Looks whether the leader is still the one that is known.
    pub(crate) async fn refresh(&self) {
        let known = self.leader.lock().await.1.clone();
        let Some(known) = known else { return };
        match ask(&self.options, &known.url, self.cluster_id).await {
            Ok(answer) => {
                self.learn(&answer);
                if !answer.leader.is_some_and(|leader| leader.client_urls.contains(&known.url)) {
                    self.forget(known.generation).await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the leader of the placement driver does not answer");
                self.forget(known.generation).await;
            }
        }
    }

    async fn look(&self) -> Result<(PdClient<Channel>, String)> {
        let urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failure = Error::unavailable("the placement driver has no leader");
        for url in urls {
            let answer = match ask(&self.options, &url, self.cluster_id).await {
                Ok(answer) => answer,
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            if cluster_of(&answer) != self.cluster_id {
                return Err(Error::invalid(format!(
                    "member {url} is of cluster {}, not of {}",
                    cluster_of(&answer),
                    self.cluster_id
                )));
            }
            self.learn(&answer);
            for url in answer.leader.into_iter().flat_map(|leader| leader.client_urls) {
                match connect(&self.options, &url).await {
                    Ok(channel) => {
                        tracing::info!(url, cluster_id = self.cluster_id, "found the leader");
                        return Ok((client(channel), url));
                    }
                    Err(error) => failure = error,
                }
            }
        }
        Err(failure)
    }

    fn learn(&self, answer: &pdpb::GetMembersResponse) {
        let mut urls = self.options.endpoints.clone();
        for url in answer.members.iter().flat_map(|member| &member.client_urls) {
            if !urls.contains(url) {
                urls.push(url.clone());
            }
        }
        *self.urls.lock().unwrap_or_else(PoisonError::into_inner) = urls;
    }
}
