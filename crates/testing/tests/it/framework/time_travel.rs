//! A story about a server that comes back from a backup.

use super::world::World;

pub async fn f12_a_server_restored_from_a_backup_is_noticed_and_put_right(world: World) {
    // Restoring a real etcd under a running server is told by the cache's own stories, with a script.
    let Some(cluster) = &world.embedded else { return };
    let operator = world.operator();
    let shelf = world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    let backup = cluster.snapshot().await.expect("a backup");
    world.resize("poems", 3).await;
    world.expect_full("poems", 3).await;
    world.create_shelf("prose", 1).await;
    world.expect_full("prose", 1).await;
    world.expect_quiet(&operator).await;
    let newest = version(&world, "poems").await;
    world.faults.cut();
    cluster.restore(&backup).await.expect("a restored server");
    let restored = world.shelves().get("poems").await.expect("the shelf of the backup");
    assert_eq!(restored.metadata.uid, shelf.metadata.uid, "it is the same shelf");
    assert!(
        version(&world, "poems").await < newest,
        "the server's revisions went back"
    );
    world.faults.heal();
    // The operator's view is newer than the server. It must take the server's word for it, and go on from there.
    world.resize("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.expect_quiet(&operator).await;
    let unknown = operator.controller.history.of(&world.key("prose"));
    assert!(
        unknown.is_some(),
        "the shelf that the backup does not have was known before"
    );
    world.create_shelf("prose", 2).await;
    world.expect_full("prose", 2).await;
    operator.stop().await;
}

async fn version(world: &World, shelf: &str) -> u64 {
    let shelf = world.shelves().get(shelf).await.expect("a shelf");
    let version = shelf.metadata.resource_version.unwrap_or_default();
    version.parse().expect("a number")
}
