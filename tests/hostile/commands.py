"""What a project's own tests or build may try. Each is a script of `sh`, by its name.

Scripts that would harm the machine that runs the tests are in `DANGEROUS`: they are only run
confined. All others are also run without, where each must achieve something.
"""

from __future__ import annotations

PYTHON = '"$PYTHON" -I -S -c'

ATTACKS = {
    # --- secrets
    "environment_of_its_own": "env",
    "environment_of_another": "cat /proc/$OTHER/environ",
    "environment_of_all": "cat /proc/[0-9]*/environ 2>/dev/null",
    "environment_of_ancestors": """
        pid=$PPID; while [ "$pid" -gt 1 ]; do cat /proc/$pid/environ;
        pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status); done; cat /proc/$OTHER/environ""",
    "memory_of_another": f"""{PYTHON} "
import re, os
pid = os.environ['OTHER']
for line in open(f'/proc/{{pid}}/maps'):
    if '[heap]' in line or '[stack]' in line:
        low, high = (int(one, 16) for one in line.split()[0].split('-'))
        with open(f'/proc/{{pid}}/mem', 'rb') as memory:
            memory.seek(low); print(re.findall(b'sk-of[a-z0-9-]*', memory.read(high - low)))" """,
    "token_of_the_checkout": "cat .git/config",
    "password_of_the_checkout": "cat .env",
    "passwords_beside_it": "cat .env.local",
    "login_of_a_cloud": "cat gha-creds-*.json",
    "netrc": "cat $USERHOME/.netrc",
    "key_of_ssh": "cat $USERHOME/.ssh/id_rsa",
    "login_of_docker": "cat $USERHOME/.docker/config.json",
    "link_to_a_secret": "ln -s $USERHOME/.netrc pkg/here && cat pkg/here; rm -f pkg/here",
    "root_of_another": "cat /proc/$OTHER/root$USERHOME/.netrc",
    "descriptors_of_another": "ls -l /proc/$OTHER/fd > /dev/null && echo breach",
    "archive": "cat $STATE/archive.sqlite",
    "names_of_the_home": "ls -a $USERHOME | grep -q netrc && echo breach",
    "names_of_the_state_folder": "test -e $STATE/archive.sqlite && echo breach",
    # --- what later steps, jobs or measurements read
    "variables_of_later_steps": "echo LD_PRELOAD=$CHECKOUT/evil.so >> $FILES/set_env",
    "outputs_of_the_step": "echo verdict=pass >> $FILES/set_output",
    "path_of_later_steps": "echo $CHECKOUT/bin >> $FILES/add_path",
    "command_files_by_glob": "for f in $TOP/temp/*/set_*; do echo x=y >> $f; done",
    "base_is_slowed": "echo 'import time; time.sleep(1)' >> $BASE/pkg/model.py",
    "base_gets_a_module": "echo > $BASE/torch.py",
    "base_gets_bytecode": "d=$BASE/pkg/__pycache__; mkdir -p $d; echo > $d/model.pyc",
    "base_becomes_a_link": "mv $BASE $BASE.old; ln -s $CHECKOUT $BASE",
    "base_loses_a_file": "rm $BASE/pkg/model.py",
    "archive_is_replaced": "cp /etc/hosts $STATE/archive.sqlite",
    "state_folder_is_moved": "mv $STATE $STATE.old; mkdir $STATE",
    "environment_of_the_tool": "echo 'exec evil' >> $TOOLS/cudal1-ci/environment/bin/python",
    "settings_of_the_checkout": "echo \"trace = 'evil'\" >> $CHECKOUT/pyproject.toml",
    "source_of_the_checkout": "echo 'x = 3' > pkg/model.py",
    "artifact_beside_the_report": "d=$TOP/temp/report; mkdir $d; echo '{}' > $d/report.json",
    # --- what Python, pip and shells run later
    "pth_file": "echo 'import os' > $VENV/lib/python3.11/site-packages/evil.pth",
    "sitecustomize": "echo > $VENV/lib/python3.11/site-packages/sitecustomize.py",
    "module_of_the_environment": "echo evil >> $VENV/lib/python3.11/site-packages/torch.py",
    "interpreter_is_replaced": "rm $VENV/bin/python; cp /bin/sh $VENV/bin/python",
    "usercustomize": """d=$USERHOME/.local/lib/python3.11/site-packages; mkdir -p $d;
        echo > $d/usercustomize.py""",
    "cache_of_pip": "echo poison > $USERHOME/.cache/pip/http/wheel",
    "settings_of_pip": "d=$USERHOME/.config/pip; mkdir -p $d; echo '[global]' > $d/pip.conf",
    "profile_of_the_shell": "echo evil >> $USERHOME/.bashrc",
    "unit_of_systemd": "d=$USERHOME/.config/systemd/user; mkdir -p $d; echo > $d/evil.service",
    "keys_of_ssh": "echo evil >> $USERHOME/.ssh/authorized_keys",
    # --- what git runs
    "hook": "h=.git/hooks/post-checkout; printf '#!/bin/sh\\nevil\\n' > $h",
    "fsmonitor": "printf '[core]\\nfsmonitor = evil\\n' >> .git/config",
    "filter": "printf '[filter \"x\"]\\nsmudge = evil\\n' >> .git/config",
    "attributes": "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "another_git_dir": "rm -rf .git; echo 'gitdir: /elsewhere' > .git",
    "settings_of_git": "printf '[core]\\nhooksPath = /x\\n' > $USERHOME/.gitconfig",
    # --- other processes
    "kills_another": "kill -9 $OTHER; sleep 0.1",
    "stops_another": "kill -STOP $OTHER; sleep 0.1",
    "traces_another": f"""{PYTHON} "
import ctypes, os
libc = ctypes.CDLL(None)
print('breach' if libc.ptrace(16, int(os.environ['OTHER']), 0, 0) == 0 else 'no')" """,
    "cores_of_another": f"""{PYTHON} "
import os
pid = int(os.environ['OTHER'])
os.sched_setaffinity(pid, os.sched_getaffinity(pid)); print('breach')" """,
    "daemon": f"""setsid {PYTHON} "import time; time.sleep(60)" $MARK >/dev/null 2>&1 &
        sleep 0.2""",
    "daemon_of_two_forks": f"""{PYTHON} "
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(60)
    os._exit(0)
time.sleep(0.2)" $MARK""",
    # --- the network and daemons
    "server_of_the_machine": f"""{PYTHON} "
import os, socket
socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 1)" """,
    "datagram": f"""{PYTHON} "
import os, socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.sendto(b'x', ('127.0.0.1', int(os.environ['PORT'])))"; sleep 0.1""",
    "socket_of_a_daemon": f"""{PYTHON} "
import os, socket
socket.socket(socket.AF_UNIX).connect(os.environ['LOCAL'])" """,
    "socket_without_a_file": f"""{PYTHON} "
import os, socket
socket.socket(socket.AF_UNIX).connect(chr(0) + os.environ['ABSTRACT'])" """,
    # --- what others find later
    "file_for_others": "echo > /tmp/$MARK",
    "file_in_shared_memory": "echo > /dev/shm/$MARK",
    "file_that_outlives_a_start": "echo > /var/tmp/$MARK",
}

DANGEROUS = {
    "kills_everything": "kill -9 -1",
    "covers_are_taken_off": "umount .git; umount -l .git; cat .git/config",
    "namespace_in_a_namespace": "unshare -Urm sh -c 'umount .git; cat .git/config; echo breach'",
    "remount": "mount -o remount,rw,bind /usr && echo breach; touch /usr/$MARK && echo breach",
    "new_mount": "mount -t tmpfs none pkg && echo breach",
    "chroot_and_back": f"""{PYTHON} "
import os
here = os.open('/', os.O_RDONLY); os.mkdir('pkg/jail'); os.chroot('pkg/jail'); os.fchdir(here)
for _ in range(64): os.chdir('..')
os.chroot('.'); print(open(os.environ['USERHOME'] + '/.netrc').read())" """,
    "program_for_crashes": "echo '|/bin/sh' > /proc/sys/kernel/core_pattern && echo breach",
    "restart": "echo b > /proc/sysrq-trigger && echo breach",
    "disk": """mknod pkg/disk b 8 0 && echo breach
        head -c 1 /dev/vda /dev/sda 2>/dev/null | grep -q . && echo breach""",
    "memory_of_the_machine": "head -c 4096 /dev/mem > pkg/memory && echo breach",
    "clock": "date -s 2001-01-01 && echo breach",
    "name_of_the_machine": "hostname evil && echo breach",
    "sudo": "sudo -n true && echo breach",
    "program_with_rights": "cp /bin/sh pkg/sh; chmod u+s pkg/sh; cat $USERHOME/.netrc",
    "system_program": "echo evil > /usr/bin/evil && echo breach; echo >> /bin/ls && echo breach",
    "accounts": "echo evil >> /etc/passwd && echo breach",
    "handle_of_a_file": f"""{PYTHON} "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer(136); handle[0:4] = (128).to_bytes(4, 'little')
number = {{'x86_64': 303, 'aarch64': 264}}[os.uname().machine]
done = libc.syscall(number, -100, b'/', handle, ctypes.byref(ctypes.c_int()), 0)
print('breach' if done == 0 else 'no')" """,
    "keyring": f"""{PYTHON} "
import ctypes, os
number = {{'x86_64': 248, 'aarch64': 217}}[os.uname().machine]
print('breach' if ctypes.CDLL(None).syscall(number, b'user', b'x', b'y', 1, -4) > 0 else 'no')" """,
    "module_of_the_kernel": "insmod evil.ko && echo breach; modprobe dummy && echo breach",
    "lost_children": "for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'sleep 60' $MARK &) ; done",
}
