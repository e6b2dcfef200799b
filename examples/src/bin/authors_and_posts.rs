//! TiFlink's own example: authors with a correlated count of their posts.
//!
//! A left join over an aggregate underneath: an author without posts has 0, and the count follows when
//! posts are written, moved to another author and deleted.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use tidemill::{Config, Tidemill};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tidemill = Tidemill::open(Config::in_memory()).await?;
    tidemill.execute("CREATE TABLE authors (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL)").await?;
    tidemill
        .execute("CREATE TABLE posts (id BIGINT PRIMARY KEY, author_id BIGINT NOT NULL, title VARCHAR(80))")
        .await?;
    tidemill.execute("INSERT INTO authors VALUES (1, 'Ada'), (2, 'Grace'), (3, 'Barbara')").await?;
    tidemill
        .execute("INSERT INTO posts VALUES (10, 1, 'Notes'), (11, 1, 'Engines'), (12, 2, 'Compilers')")
        .await?;
    tidemill
        .execute(
            "CREATE MATERIALIZED VIEW author_posts AS SELECT a.id, a.name, \
             (SELECT count(*) FROM posts p WHERE p.author_id = a.id) AS posts FROM authors a",
        )
        .await?;
    let query = "SELECT name, posts FROM author_posts ORDER BY id";
    assert_eq!(tidemill.execute(query).await?.texts(), [["Ada", "2"], ["Grace", "1"], ["Barbara", "0"]]);

    tidemill.execute("BEGIN").await?;
    tidemill.execute("UPDATE posts SET author_id = 3 WHERE id = 11").await?;
    tidemill.execute("DELETE FROM posts WHERE id = 12").await?;
    tidemill.execute("COMMIT").await?;
    let answer = tidemill.execute(query).await?;
    println!("{answer}");
    assert_eq!(answer.texts(), [["Ada", "1"], ["Grace", "0"], ["Barbara", "1"]]);

    let different = tidemill.execute("VERIFY MATERIALIZED VIEW author_posts").await?;
    assert!(different.rows.is_empty(), "the view differs from its query: {different}");
    tidemill.shutdown().await?;
    Ok(())
}
