"""A run over shards: parts of the population in this process, or on the machines of a Ray cluster.

    training   the run: chief, records and evaluation, where the command was typed
    shard      a part: environments, learners, and a replica of the replay
    local      shards in this process                    engine `local`
    on_ray     shards as Ray actors                      engine `ray`
    recovery   a run whose shards are lost goes back to its last checkpoint

Every `exchange_period` own steps the shards get each other's transitions and insert them in the
order of steps and learners. So all replicas are equal, whoever was faster.
"""
