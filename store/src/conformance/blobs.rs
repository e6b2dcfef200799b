//! Unversioned values: they come back as they were put, in key order, until they are deleted.

use std::sync::Arc;

use super::put;
use crate::traits::{Key, Store, Value};

pub(super) async fn run(store: Arc<dyn Store>) {
    let large = Value::from(vec![7u8; 1 << 20]);
    let blob = |number: u32| (Key::from(format!("run/{number:04}")), Value::from(format!("part {number}")));
    store.put_blobs((0..100).map(blob).collect()).await.expect("blobs are taken");
    store.put_blobs(vec![(Key::from("large"), large.clone())]).await.expect("a large blob is taken");
    put(&store, "run/0000", "a versioned key of the same name").await;

    assert_eq!(store.get_blob(b"large").await.expect("a blob is read"), Some(large));
    assert_eq!(
        store.get_blob(b"run/0042").await.expect("a blob is read").as_deref(),
        Some(b"part 42".as_slice())
    );
    assert_eq!(store.get_blob(b"run/0100").await.expect("a blob is read"), None);

    let mut after = None;
    let mut listed = Vec::new();
    loop {
        let page = store.list_blobs(b"run/", after, 7).await.expect("blobs are listed");
        let Some(last) = page.last().cloned() else { break };
        listed.extend(page);
        after = Some(last);
    }
    let expected: Vec<Key> = (0..100).map(|number| blob(number).0).collect();
    assert_eq!(listed, expected, "the list is in key order and complete");

    store.delete_blobs(expected[10..].to_vec()).await.expect("blobs are deleted");
    store.delete_blobs(vec![Key::from("never there")]).await.expect("deleting nothing is fine");
    assert_eq!(store.list_blobs(b"run/", None, 1000).await.expect("blobs are listed"), expected[..10]);
    let both = store.list_blobs(b"", None, 1000).await.expect("blobs are listed");
    assert_eq!(both.len(), 11, "an empty prefix lists all blobs, and no versioned keys");
}
