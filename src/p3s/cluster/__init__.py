"""A run over shards: parts of the population in this process, or on the machines of a Ray cluster.

    shards         all shards as one crew: the exchange, and what they say put together
    shard          a part: environments, learners, and a replica of the replay
    places         where shards live: in this process               engine `local`
    on_ray         on the machines of a cluster, as Ray actors       engine `ray`

Every `exchange_period` own steps the shards get each other's transitions and insert them in the
order of steps and learners. So all replicas are equal, whoever was faster.
"""
