"""MuJoCo's warnings."""

from __future__ import annotations

import subprocess
import sys


class TestMujocoWarnings:
    def test_go_to_the_stream_once_and_survive_its_end(self):
        """In a process of its own: an error in a callback from C would abort it."""
        code = """if True:
            import io, sys
            import mujoco
            from p3s.envs.mujoco_setup import warn_once
            out = io.StringIO()
            warn_once(out)
            model = mujoco.MjModel.from_xml_string(
                "<mujoco><worldbody><body><joint name='j' axis='0 0 1'/><geom size='1'/></body>"
                "</worldbody><actuator><motor joint='j'/></actuator></mujoco>"
            )
            for index in range(4):
                data = mujoco.MjData(model)
                data.ctrl[:] = float("nan")
                mujoco.mj_step(model, data)
                if index == 2:
                    print(out.getvalue())
                    out.close()
            print("went on after", data.warning[mujoco.mjtWarning.mjWARN_BADCTRL].number)
        """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("MuJoCo: ") == 1
        assert "went on after 1" in done.stdout

    def test_what_only_the_authors_of_a_model_can_mend_is_not_said(self, tmp_path):
        code = """if True:
            from p3s.envs import make_env
            for _ in range(3):
                make_env("HalfCheetah-v5").close()
        """
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert not list(tmp_path.iterdir())

    def test_a_handler_of_ones_own_stays(self):
        code = """if True:
            import mujoco
            said = []
            mujoco.set_mju_user_warning(said.append)
            from p3s.envs import make_env
            make_env("HalfCheetah-v5").close()
            mujoco.MjModel.from_xml_string("<mujoco><compiler settotalmass='1'/></mujoco>")
            print(len(said))
        """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) >= 1
        assert "MuJoCo: " not in done.stderr
