//! The calls of the feed.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use tikv::proto::cdcpb::{self, change_data_request, change_data_server::ChangeData};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::Connection;
use super::connection::messages;
use crate::service::StoreService;

/// The one feature that there is.
const MULTIPLEXING: &str = "stream-multiplexing";

type Messages = BoxStream<'static, Result<cdcpb::ChangeDataEvent, Status>>;

#[tonic::async_trait]
impl ChangeData for StoreService {
    type EventFeedStream = Messages;

    async fn event_feed(
        &self,
        request: Request<Streaming<cdcpb::ChangeDataRequest>>,
    ) -> Result<Response<Messages>, Status> {
        Ok(Response::new(self.feed(request.into_inner(), false)))
    }

    type EventFeedV2Stream = Messages;

    async fn event_feed_v2(
        &self,
        request: Request<Streaming<cdcpb::ChangeDataRequest>>,
    ) -> Result<Response<Messages>, Status> {
        if self.shared.options.old_feed {
            return Err(Status::unimplemented("unknown method EventFeedV2"));
        }
        let multiplexing = features(request.metadata())?.contains(MULTIPLEXING);
        Ok(Response::new(self.feed(request.into_inner(), multiplexing)))
    }
}

/// The features that a client wants; unknown ones are refused, an empty list too.
fn features(metadata: &MetadataMap) -> Result<BTreeSet<String>, Status> {
    let Some(wanted) = metadata.get("features") else { return Ok(BTreeSet::new()) };
    let wanted = wanted.to_str().map_err(|_| Status::unimplemented("the features cannot be read"))?;
    let names: BTreeSet<String> = wanted.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().find(|name| *name != MULTIPLEXING) {
        None => Ok(names),
        Some(unknown) => Err(Status::unimplemented(format!("feature {unknown:?} is not known"))),
    }
}

impl StoreService {
    fn feed(&self, mut requests: Streaming<cdcpb::ChangeDataRequest>, multiplexing: bool) -> Messages {
        let connection = Arc::new(Connection::new(
            self.shared.next_connection(),
            self.store_id,
            multiplexing,
            self.shared.options.feed_bytes_max,
        ));
        let (service, reading) = (self.clone(), Arc::clone(&connection));
        self.shared.tasks.spawn_stoppable(async move {
            while let Some(Ok(request)) = requests.next().await {
                service.shared.mvcc.ledger.count("EventFeed", prost::Message::encoded_len(&request), 0);
                if let Err(status) = service.take(&reading, request).await {
                    reading.close(Some(status));
                    return;
                }
            }
            reading.close(None);
        });
        let shared = Arc::clone(&self.shared);
        let counted = messages(connection).inspect(move |message| {
            if let Ok(message) = message {
                let bytes = prost::Message::encoded_len(message);
                shared.mvcc.ledger.count_streamed("EventFeed", bytes);
            }
        });
        let stop = self.shared.tasks.stop_token();
        counted.take_until(stop.cancelled_owned()).boxed()
    }

    async fn take(
        &self,
        connection: &Arc<Connection>,
        request: cdcpb::ChangeDataRequest,
    ) -> Result<(), Status> {
        connection.version_of(&request);
        match &request.request {
            None | Some(change_data_request::Request::Register(_)) => {
                self.register(connection, request).await
            }
            Some(change_data_request::Request::Deregister(_)) => {
                self.deregister(connection, request.request_id, request.region_id).await;
                Ok(())
            }
            Some(change_data_request::Request::NotifyTxnStatus(_)) => {
                Err(self.shared.mvcc.ledger.refuse("EventFeed with NotifyTxnStatus".to_owned()))
            }
        }
    }
}
