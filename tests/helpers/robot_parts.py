"""A small robot as MJCF text, with gaps to put something wrong into."""

FLOOR = '<geom name="floor" type="plane" size="5 5 1" friction="0.5"/>'


def robot(joint="", body="", more="", free='<joint name="ball" type="ball"/>'):
    """Thigh, shank and a separate ball over a floor; `joint` and `body` are attributes of knee and shank."""
    knee = joint if "axis" in joint else f'axis="0 1 0" {joint}'
    return f"""
    <mujoco>
      <worldbody>
        {FLOOR}
        <body name="thigh" pos="0 0 1">
          {free or '<joint name="hip" axis="0 1 0"/>'}
          <geom name="thigh" type="sphere" size="0.1" friction="0.7"/><site name="a"/>
          <body name="shank" pos="0 0 -0.3" {body}>
            <joint name="knee" {knee}/>
            <geom name="shank" type="sphere" size="0.05" friction="0.2" priority="1"/>
            <body name="foot" pos="0 0 -0.3">
              <geom name="foot" type="sphere" size="0.06" condim="1"/>
            </body>
            <body name="heel" pos="0.1 0 -0.3">
              <joint name="heel" axis="0 1 0"/>
              <geom name="heel" type="sphere" size="0.03" friction="0.9"/><site name="b"/>
            </body>
          </body>
        </body>
        <body name="stone" pos="1 0 0">
          <joint type="slide" axis="0 0 1"/>
          <geom name="stone" type="sphere" size="0.1" condim="1" contype="2" conaffinity="1"/>
        </body>
        <geom name="bump" type="sphere" size="0.1" pos="-1 0 0"/>
      </worldbody>
      <contact>
        <exclude body1="thigh" body2="heel"/>
        <pair geom1="thigh" geom2="shank" friction="0.33 0.33"/>
      </contact>
      {more}
    </mujoco>"""
