"""Use a policy where there is no jax: export it to ONNX, then play with onnxruntime alone.

python examples/policy_without_jax.py [STEPS]
"""

import subprocess
import sys

PLAY = """
import sys
import gymnasium, numpy, onnxruntime

session = onnxruntime.InferenceSession("pendulum.onnx")
env = gymnasium.make("Pendulum-v1")
observation, _ = env.reset(seed=0)
total = 0.0
for _ in range(200):
    seen = numpy.asarray(observation, numpy.float32)[None]
    (action,) = session.run(None, {"observation": seen})
    observation, reward, *_ = env.step(action[0])
    total += reward
assert "jax" not in sys.modules
print("return without jax:", total)
"""

if __name__ == "__main__":
    from p3s import Population
    from p3s.policies.onnx_export import export_onnx

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000
    population = Population("Pendulum-v1", hidden_sizes=(64, 64)).learn(steps)
    export_onnx(population.policy, "pendulum.onnx")
    subprocess.run([sys.executable, "-c", PLAY], check=True)
